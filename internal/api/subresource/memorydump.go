package subresource

import (
	"context"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/rules/vm/memorydump"
	"drydock.dev/drydock/internal/rules/vmi/verb"
)

func (s *Server) dumpMemory(w http.ResponseWriter, r *http.Request) error {
	asked, err := readOptions[v1.VirtualMachineMemoryDumpRequest](r)
	if err != nil {
		return err
	}
	return s.editMemoryDump(w, r, func(ctx context.Context, vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance) (next *v1.VirtualMachineMemoryDumpRequest, refusal, failure error) {
		if err := HeldDisks(vm, func(sentence string) error { return verb.Conflict(vm, "%s", sentence) }); err != nil {
			return nil, err, nil
		}
		name, refusal := memorydump.ClaimOf(vm, asked)
		if refusal != nil {
			return nil, apierrors.NewBadRequest(refusal.Error()), nil
		}
		claim, err := s.dumpClaim(ctx, vm.Namespace, name)
		if err != nil {
			return nil, nil, err
		}
		if next, refusal = memorydump.Ask(memorydump.Asked{VM: vm, VMI: vmi, ClaimName: name, Claim: claim}); refusal != nil {
			return nil, verb.Conflict(vm, "%v", refusal), nil
		}
		use, err := s.unused(ctx, vmi, name, false)
		if err == nil && use != "" {
			return nil, verb.Conflict(vm, "%s: use another claim for the memory dump", use), nil
		}
		return next, nil, err
	})
}

func (s *Server) removeMemoryDump(w http.ResponseWriter, r *http.Request) error {
	return s.editMemoryDump(w, r, func(_ context.Context, vm *v1.VirtualMachine, _ *v1.VirtualMachineInstance) (next *v1.VirtualMachineMemoryDumpRequest, refusal, failure error) {
		if next, refusal = memorydump.AskRemoval(vm); refusal != nil {
			return nil, verb.Conflict(vm, "%v", refusal), nil
		}
		return next, nil, nil
	})
}

// editMemoryDump writes a VM's request, on condition of the version that was read. virt-controller follows it.
func (s *Server) editMemoryDump(w http.ResponseWriter, r *http.Request,
	edit func(context.Context, *v1.VirtualMachine, *v1.VirtualMachineInstance) (next *v1.VirtualMachineMemoryDumpRequest, refusal, failure error)) error {
	return s.untilWritten(w, func() (refusal, failure error) {
		vm, vmi, err := s.read(r.Context(), key(r))
		if err != nil {
			return nil, err
		}
		next, refusal, err := edit(r.Context(), vm, vmi)
		if refusal != nil || err != nil {
			return refusal, err
		}
		changed := vm.DeepCopy()
		changed.Status.MemoryDumpRequest = next
		locked := client.MergeFromWithOptions(vm, client.MergeFromWithOptimisticLock{})
		return nil, s.cluster.Status().Patch(r.Context(), changed, locked, &client.SubResourcePatchOptions{PatchOptions: *writeOptions(nil)})
	})
}

// dumpClaim returns nil for a claim that does not exist.
func (s *Server) dumpClaim(ctx context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error) {
	claim := &corev1.PersistentVolumeClaim{}
	switch err := s.cluster.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, claim); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading PVC %s/%s: %w", namespace, name, err)
	}
	return claim, nil
}
