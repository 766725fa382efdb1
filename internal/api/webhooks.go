package api

import (
	"context"
	"fmt"
	"net/http"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/user"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/api/admission"
	"drydock.dev/drydock/internal/api/cloneright"
	"drydock.dev/drydock/internal/api/defaults"
	"drydock.dev/drydock/internal/api/server"
	"drydock.dev/drydock/internal/api/validate"
	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
	"drydock.dev/drydock/internal/rules/vmi/starttrace"
)

// kube-apiserver authenticates itself to an aggregated API, and not to any other webhook (decision 614).
var webhookVersion = schema.GroupVersion{Group: "admission.drydock.dev", Version: "v1"}

// These are the paths of the webhooks below webhookVersion, as registered in config/deploy/api.yaml.
const (
	mutateVM     = "/mutate/virtualmachines"
	mutateVMI    = "/mutate/virtualmachineinstances"
	validateVM   = "/validate/virtualmachines"
	validateVMI  = "/validate/virtualmachineinstances"
	validateRS   = "/validate/virtualmachineinstancereplicasets"
	validateVMIM = "/validate/virtualmachineinstancemigrations"
	validateKV   = "/validate/kubevirts"
	mutateVMIM   = "/mutate/virtualmachineinstancemigrations"
	validateMP   = "/validate/migrationpolicies"
	mutateDV     = "/mutate/datavolumes"
	validateDV   = "/validate/datavolumes"
	validateCDI  = "/validate/cdis"

	validateEviction = "/validate/evictions"

	mutateMaintenance   = "/mutate/maintenance-pods"
	validateMaintenance = "/validate/maintenance-pods"
)

// webhookAPI serves the webhooks only to kube-apiserver.
func webhookAPI(hooks map[string]http.Handler, turns *room) server.Group {
	mux := http.NewServeMux()
	for path, hook := range hooks {
		mux.Handle("POST "+webhookPath(path), hook)
	}
	return server.Group{GroupVersion: webhookVersion, API: turns.entrance(reviews{}, smallReview).inTurn(mux), Resources: []metav1.APIResource{}, Caller: user.APIServerUser}
}

func webhookPath(path string) string { return "/apis/" + webhookVersion.String() + path }

// cluster must not be a cache. traced gets a span of each new VMI, and may be nil.
func webhooks(settings *clusterconfig.Current, cluster client.Client, traced func([]starttrace.Span)) (map[string]http.Handler, error) {
	served := map[string]http.Handler{}
	var failed error
	add := func(path string, handler http.Handler, err error) {
		served[path] = handler
		if failed == nil {
			failed = err
		}
	}
	right := cloneright.Checker{Client: cluster}
	vms := virtualMachines{settings: settings, cluster: cluster, right: right}
	addMutating(add, settings, vms)
	addValidating(add, settings, vms)
	addVMIs(add, settings, traced)
	addInstancetypes(add)
	addMigrations(add, cluster)
	addEvictions(add, cluster, settings)
	addMaintenance(add, cluster)
	addDataVolumes(add, settings, right)
	return served, failed
}

// Only users get warnings, not components.
func advice[T any](of func(object, old *T) []string) func(admission.Request[T]) []string {
	return func(r admission.Request[T]) []string {
		if r.Component() || r.New == nil {
			return nil
		}
		return of(r.New, r.Old)
	}
}

type adder func(path string, handler http.Handler, err error)

func addMutating(add adder, settings *clusterconfig.Current, vms virtualMachines) {
	vm, err := admission.MutatingAsking(vms.complete)
	add(mutateVM, vm, err)
	vmi, err := admission.Mutating(func(r admission.Request[v1.VirtualMachineInstance]) {
		switch {
		case r.Operation == admissionv1.Create:
			defaults.VMI(r.New, settings.Get())
		case !r.Component():
			defaults.VMIUpdate(r.New, r.Old, settings.Get())
		}
	}, advice(func(vmi, old *v1.VirtualMachineInstance) []string {
		return validate.VMIWarnings(vmi, old, settings.Get())
	}))
	add(mutateVMI, vmi, err)
}

func addValidating(add adder, settings *clusterconfig.Current, vms virtualMachines) {
	vm, err := admission.Judging(func(ctx context.Context, r admission.Request[v1.VirtualMachine]) (admission.Verdict, error) {
		if r.Component() && r.Operation == admissionv1.Update {
			// A component's update must not fail on a field that an earlier release admitted.
			return admission.Verdict{}, nil
		}
		verdict, err := vms.judge(ctx, r)
		// This also applies to virt-controller: a user wrote the manifest that a restore or a clone creates.
		verdict.Errors = append(verdict.Errors, validate.MaintenanceLock(r.New, r.Old)...)
		if err != nil {
			return verdict, err
		}
		// This also applies where CDI serves DataVolumes: CDI checks the right of virt-controller, which may clone
		// everything.
		more, err := mayCloneAll(ctx, r, vms.right)
		verdict.Errors = append(verdict.Errors, more...)
		return verdict, err
	}, advice(func(vm, old *v1.VirtualMachine) []string { return validate.VMWarnings(vm, old, settings.Get()) }))
	add(validateVM, vm, err)
	rs, err := admission.Validating(func(r admission.Request[v1.VirtualMachineInstanceReplicaSet]) field.ErrorList {
		return validate.ReplicaSet(r.New, r.Old, settings.Get())
	}, advice(func(rs, old *v1.VirtualMachineInstanceReplicaSet) []string {
		return validate.ReplicaSetWarnings(rs, old, settings.Get())
	}))
	add(validateRS, rs, err)
	kv, err := admission.ValidatingAsking(func(ctx context.Context, r admission.Request[v1.KubeVirt]) (field.ErrorList, error) {
		switch r.Operation {
		case admissionv1.Delete:
			return mayUninstall(ctx, r.Old, vms.cluster)
		case admissionv1.Create:
			errs, err := onlyOne(ctx, vms.cluster)
			return append(errs, validate.KubeVirt(r.New, r.Old)...), err
		}
		return validate.KubeVirt(r.New, r.Old), nil
	}, advice(validate.KubeVirtWarnings))
	add(validateKV, kv, err)
}

func addVMIs(add adder, settings *clusterconfig.Current, traced func([]starttrace.Span)) {
	vmi, err := admission.Validating(func(r admission.Request[v1.VirtualMachineInstance]) field.ErrorList {
		switch {
		case r.Operation == admissionv1.Create:
			begin := time.Now()
			errs := validate.VMI(r.New, settings.Get())
			if traced != nil && len(errs) == 0 && !r.DryRun {
				at := starttrace.Interval{Begin: begin, End: time.Now()}
				traced([]starttrace.Span{starttrace.AdmissionSpan(r.Namespace, r.New.Name, r.New.UID, at)})
			}
			return errs
		case r.Component():
			return nil
		}
		return validate.VMIUpdate(r.New, r.Old)
	})
	add(validateVMI, vmi, err)
}

func onlyOne(ctx context.Context, cluster client.Reader) (field.ErrorList, error) {
	var all v1.KubeVirtList
	if err := cluster.List(ctx, &all, client.Limit(1)); err != nil {
		return nil, fmt.Errorf("looking for another KubeVirt object: %w", err)
	}
	if len(all.Items) == 0 {
		return nil, nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("metadata", "name"),
		fmt.Sprintf("the cluster has a KubeVirt object, %s/%s, and can have but one: change that, or delete it before", all.Items[0].Namespace, all.Items[0].Name))}, nil
}

// mayUninstall refuses to delete the KubeVirt object while objects exist that its uninstallStrategy protects.
func mayUninstall(ctx context.Context, kv *v1.KubeVirt, cluster client.Reader) (field.ErrorList, error) {
	if kv == nil || kv.Spec.UninstallStrategy != v1.KubeVirtUninstallStrategyBlockUninstallIfWorkloadsExist {
		return nil, nil
	}
	for _, kind := range []struct {
		name string
		list client.ObjectList
	}{
		{"VirtualMachines", &v1.VirtualMachineList{}},
		{"VirtualMachineInstances", &v1.VirtualMachineInstanceList{}},
		{"VirtualMachineInstanceReplicaSets", &v1.VirtualMachineInstanceReplicaSetList{}},
	} {
		if err := cluster.List(ctx, kind.list, client.Limit(1)); err != nil {
			return nil, fmt.Errorf("looking for %s: %w", kind.name, err)
		}
		if meta.LenList(kind.list) > 0 {
			return field.ErrorList{field.Forbidden(field.NewPath("spec", "uninstallStrategy"),
				"Rejecting the uninstall request, since there are still "+kind.name+" present: delete them first, or set another uninstallStrategy")}, nil
		}
	}
	return nil, nil
}
