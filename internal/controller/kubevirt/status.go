package kubevirt

import (
	"fmt"
	"runtime"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/version"
	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
	"drydock.dev/drydock/internal/rules/object/condition"
)

const (
	reasonAllCreated      = "AllResourcesCreated"
	reasonMissing         = "ResourcesMissing"
	reasonAllReady        = "AllComponentsReady"
	reasonNotReady        = "ComponentsNotReady"
	reasonRollingOut      = "RolloutInProgress"
	reasonDrydock         = "DrydockServes"
	reasonCDI             = "CDIServes"
	reasonConfigured      = "WorkloadsConfigured"
	reasonRefused         = "ConfigurationRefused"
	messageConfigured     = "The workloads are as this object has them."
	messageAllReady       = "All components are ready."
	messageAllCreated     = "All resources were created."
	separatorOfComponents = "; "
)

type component struct {
	name                       string
	exists                     bool
	wanted, updated, available int32
	// The controller has observed its newest spec.
	current bool
}

func (c component) ready() bool     { return c.exists && c.wanted > 0 && c.available >= c.wanted }
func (c component) rolledOut() bool { return c.exists && c.current && c.updated >= c.wanted }
func (c component) describe() string {
	switch {
	case !c.exists:
		return c.name + " does not exist"
	case c.wanted == 0:
		return c.name + " has no pod"
	}
	return fmt.Sprintf("%s: %d of %d available", c.name, c.available, c.wanted)
}

type facts struct {
	components []component
	// cdi is CDI's Deployment as "namespace/name", "" for none.
	cdi string
	// refused says why workloads don't have the KubeVirt object's configuration, "" if they do.
	refused string
}

func status(kv *v1.KubeVirt, is facts, now time.Time) v1.KubeVirtStatus {
	out := *kv.Status.DeepCopy()
	missing := failing(is.components, func(c component) bool { return c.exists })
	notReady := failing(is.components, component.ready)
	rolling := failing(is.components, component.rolledOut)

	set := func(kind v1.KubeVirtConditionType, isTrue bool, reason, message string) {
		value := corev1.ConditionFalse
		if isTrue {
			value = corev1.ConditionTrue
		}
		condition.Set(&out.Conditions, v1.KubeVirtCondition{Type: kind, Status: value, Reason: reason, Message: message}, now)
	}
	if missing == "" {
		set(v1.KubeVirtConditionCreated, true, reasonAllCreated, messageAllCreated)
	} else {
		set(v1.KubeVirtConditionCreated, false, reasonMissing, missing)
	}
	deployed := kv.Status.Phase == v1.KubeVirtPhaseDeployed || notReady == "" && rolling == ""
	if notReady == "" {
		set(v1.KubeVirtConditionAvailable, true, reasonAllReady, messageAllReady)
		set(v1.KubeVirtConditionDegraded, false, reasonAllReady, messageAllReady)
	} else {
		set(v1.KubeVirtConditionAvailable, false, reasonNotReady, notReady)
		// During the first deployment, a missing component is not a degraded one.
		set(v1.KubeVirtConditionDegraded, deployed, reasonNotReady, notReady)
	}
	if rolling == "" {
		set(v1.KubeVirtConditionProgressing, false, reasonAllReady, messageAllReady)
	} else {
		set(v1.KubeVirtConditionProgressing, true, reasonRollingOut, rolling)
	}
	if is.refused == "" {
		set(v1.KubeVirtConditionSynchronized, true, reasonConfigured, messageConfigured)
	} else {
		set(v1.KubeVirtConditionSynchronized, false, reasonRefused, is.refused)
	}
	if is.cdi == "" {
		set(clusterconfig.ConditionDataVolumes, true, reasonDrydock, "Drydock serves DataVolumes.")
	} else {
		set(clusterconfig.ConditionDataVolumes, false, reasonCDI, "CDI is installed (Deployment "+is.cdi+") and serves DataVolumes.")
	}

	out.Phase = v1.KubeVirtPhaseDeploying
	if deployed {
		out.Phase = v1.KubeVirtPhaseDeployed
	}
	out.OperatorVersion = version.Version
	out.TargetKubeVirtVersion = version.Version
	if notReady == "" && rolling == "" {
		out.ObservedKubeVirtVersion = version.Version
	}
	out.DefaultArchitecture = runtime.GOARCH
	out.ObservedGeneration = &kv.Generation
	return out
}

func failing(components []component, ok func(component) bool) string {
	var out []string
	for _, c := range components {
		if !ok(c) {
			out = append(out, c.describe())
		}
	}
	return strings.Join(out, separatorOfComponents)
}
