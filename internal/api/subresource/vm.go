package subresource

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/answer"
	"drydock.dev/drydock/internal/expansion"
	"drydock.dev/drydock/internal/rules/vmi/verb"
)

const fieldOwner = client.FieldOwner("virt-api")

func (s *Server) start(w http.ResponseWriter, r *http.Request) error {
	options, err := readOptions[v1.StartOptions](r)
	if err != nil {
		return err
	}
	return s.change(w, r, options.DryRun, func(vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance) (verb.Plan, error) {
		return verb.Start(vm, vmi, *options)
	})
}

func (s *Server) stop(w http.ResponseWriter, r *http.Request) error {
	options, err := readOptions[v1.StopOptions](r)
	if err != nil {
		return err
	}
	return s.change(w, r, options.DryRun, func(vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance) (verb.Plan, error) {
		return verb.Stop(vm, vmi, *options)
	})
}

func (s *Server) restart(w http.ResponseWriter, r *http.Request) error {
	options, err := readOptions[v1.RestartOptions](r)
	if err != nil {
		return err
	}
	return s.change(w, r, options.DryRun, func(vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance) (verb.Plan, error) {
		return verb.Restart(vm, vmi, *options)
	})
}

// A write requires the version from which the plan was made; after a conflict everything is planned again.
func (s *Server) change(w http.ResponseWriter, r *http.Request, dryRun []string,
	plan func(*v1.VirtualMachine, *v1.VirtualMachineInstance) (verb.Plan, error)) error {
	name := key(r)
	var refusal error
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		vm, vmi, err := s.read(r.Context(), name)
		if err != nil {
			return err
		}
		p, err := plan(vm, vmi)
		if err != nil {
			// A refusal is a conflict, too, but not worth a retry.
			refusal = err
			return nil
		}
		return s.apply(r.Context(), vm, vmi, p, dryRun)
	})
	if err != nil {
		return err
	}
	if refusal != nil {
		return refusal
	}
	w.WriteHeader(http.StatusAccepted)
	return nil
}

func (s *Server) read(ctx context.Context, name types.NamespacedName) (*v1.VirtualMachine, *v1.VirtualMachineInstance, error) {
	vm := &v1.VirtualMachine{}
	if err := s.cluster.Get(ctx, name, vm); err != nil {
		return nil, nil, err
	}
	vmi := &v1.VirtualMachineInstance{}
	switch err := s.cluster.Get(ctx, name, vmi); {
	case apierrors.IsNotFound(err):
		return vm, nil, nil
	case err != nil:
		return nil, nil, err
	case !metav1.IsControlledBy(vmi, vm):
		return vm, nil, nil
	}
	return vm, vmi, nil
}

// apply writes the grace period first, for the shutdown that follows, and the run strategy last: a reader who sees the VM
// start also sees how.
func (s *Server) apply(ctx context.Context, vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance, p verb.Plan, dryRun []string) error {
	options := writeOptions(dryRun)
	if p.GracePeriod != nil {
		changed := vmi.DeepCopy()
		changed.Spec.TerminationGracePeriodSeconds = p.GracePeriod
		if err := s.cluster.Patch(ctx, changed, client.MergeFrom(vmi), options); err != nil {
			return client.IgnoreNotFound(err)
		}
	}
	locked := client.MergeFromWithOptions(vm, client.MergeFromWithOptimisticLock{})
	wanted := vm.DeepCopy()
	p.Apply(wanted)
	if p.Requests != nil {
		changed := vm.DeepCopy()
		changed.Status.StateChangeRequests = wanted.Status.StateChangeRequests
		if err := s.cluster.Status().Patch(ctx, changed, locked, &client.SubResourcePatchOptions{PatchOptions: *writeOptions(dryRun)}); err != nil {
			return err
		}
		if len(dryRun) == 0 {
			// The next write requires the version of this one.
			vm = changed
			locked = client.MergeFromWithOptions(vm, client.MergeFromWithOptimisticLock{})
		}
	}
	if p.RunStrategy == "" {
		return nil
	}
	changed := vm.DeepCopy()
	changed.Spec = wanted.Spec
	return s.cluster.Patch(ctx, changed, locked, options)
}

func writeOptions(dryRun []string) *client.PatchOptions {
	return &client.PatchOptions{DryRun: slices.Clone(dryRun), FieldManager: string(fieldOwner)}
}

func (s *Server) expandSpec(w http.ResponseWriter, r *http.Request) error {
	vm := &v1.VirtualMachine{}
	if err := s.cluster.Get(r.Context(), key(r), vm); err != nil {
		return err
	}
	return s.writeExpanded(w, r, vm)
}

func (s *Server) expandGiven(w http.ResponseWriter, r *http.Request) error {
	vm, err := readBody[v1.VirtualMachine](r)
	if err != nil {
		return err
	}
	if vm == nil {
		return apierrors.NewBadRequest("the request has no body; it must be a VirtualMachine")
	}
	switch namespace := r.PathValue("namespace"); vm.Namespace {
	case "":
		vm.Namespace = namespace
	case namespace:
	default:
		return apierrors.NewBadRequest(fmt.Sprintf("VM namespace must be empty or %s", namespace))
	}
	return s.writeExpanded(w, r, vm)
}

func (s *Server) writeExpanded(w http.ResponseWriter, r *http.Request, vm *v1.VirtualMachine) error {
	expanded, err := s.expanded(r.Context(), vm)
	if err != nil {
		return err
	}
	expanded.SetGroupVersionKind(v1.VirtualMachineGroupVersionKind)
	return answer.JSON(w, http.StatusOK, expanded)
}

// A failure to expand the VM is a bad request.
func (s *Server) expanded(ctx context.Context, vm *v1.VirtualMachine) (*v1.VirtualMachine, error) {
	expanded, errs, err := expansion.VM(ctx, s.cluster, vm, s.maintenance.Settings().DefaultNetworkInterface)
	if err != nil {
		return nil, err
	}
	if len(errs) > 0 {
		return nil, apierrors.NewBadRequest(errs.ToAggregate().Error())
	}
	return expanded, nil
}
