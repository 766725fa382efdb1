package datavolume

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	conditions "github.com/openshift/custom-resource-status/conditions/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	sdkapi "kubevirt.io/controller-lifecycle-operator-sdk/api"
)

const (
	reasonServed  = "DrydockServesDataVolumes"
	reasonAnother = "AnotherObjectCounts"
)

// Installation is the plan for the CDI objects.
type Installation struct {
	// Config is the new spec of the CDIConfig; nil leaves it as it is.
	Config *cdiv1.CDIConfigSpec
	// Changed objects have a new status.
	Changed []*cdiv1.CDI
}

// PlanInstallation takes the CDIConfig's spec from the oldest CDI object; newer ones have no effect, as their status
// says. It ignores objects that are being deleted and those of CDI's operator.
func PlanInstallation(all []cdiv1.CDI, version string, now time.Time) Installation {
	ours := slices.DeleteFunc(slices.Clone(all), func(o cdiv1.CDI) bool { return o.DeletionTimestamp != nil || OperatedByCDI(&o) })
	slices.SortFunc(ours, func(a, b cdiv1.CDI) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	var out Installation
	for i := range ours {
		to := ours[i].DeepCopy()
		status := &to.Status
		if i == 0 {
			out.Config = to.Spec.Config.DeepCopy()
			status.Phase, status.ObservedVersion = sdkapi.PhaseDeployed, version
			setInstallationCondition(status, conditions.ConditionAvailable, corev1.ConditionTrue, reasonServed, "Drydock serves DataVolumes; CDI is not installed", now)
			setInstallationCondition(status, conditions.ConditionProgressing, corev1.ConditionFalse, reasonServed, "", now)
			setInstallationCondition(status, conditions.ConditionDegraded, corev1.ConditionFalse, reasonServed, "", now)
		} else {
			message := fmt.Sprintf("the cluster's CDI object is %s, which is older: change that one, or delete it", ours[0].Name)
			status.Phase, status.ObservedVersion = sdkapi.PhaseError, ""
			setInstallationCondition(status, conditions.ConditionAvailable, corev1.ConditionFalse, reasonAnother, message, now)
			setInstallationCondition(status, conditions.ConditionProgressing, corev1.ConditionFalse, reasonAnother, "", now)
			setInstallationCondition(status, conditions.ConditionDegraded, corev1.ConditionTrue, reasonAnother, message, now)
		}
		if !equality.Semantic.DeepEqual(ours[i].Status, to.Status) {
			out.Changed = append(out.Changed, to)
		}
	}
	return out
}

// OperatedByCDI reports whether CDI's own operator manages the object. Drydock never sets operatorVersion.
func OperatedByCDI(o *cdiv1.CDI) bool { return o.Status.OperatorVersion != "" }

// An unchanged condition keeps its heartbeat, so that it causes no write.
func setInstallationCondition(status *cdiv1.CDIStatus, kind conditions.ConditionType, is corev1.ConditionStatus, reason, message string, now time.Time) {
	at := metav1.NewTime(now.Truncate(time.Second))
	want := conditions.Condition{Type: kind, Status: is, Reason: reason, Message: message, LastHeartbeatTime: at, LastTransitionTime: at}
	i := slices.IndexFunc(status.Conditions, func(c conditions.Condition) bool { return c.Type == kind })
	if i < 0 {
		status.Conditions = append(status.Conditions, want)
		return
	}
	was := &status.Conditions[i]
	if was.Status == is {
		want.LastTransitionTime = was.LastTransitionTime
	}
	if was.Status == is && was.Reason == reason && was.Message == message {
		want.LastHeartbeatTime = was.LastHeartbeatTime
	}
	*was = want
}
