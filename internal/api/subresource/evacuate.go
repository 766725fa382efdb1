package subresource

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/rules/migration/evacuation"
	"drydock.dev/drydock/internal/rules/object/objectevent"
	"drydock.dev/drydock/internal/rules/vmi/verb"
)

// CancelEvacuation refuses unless an evacuation is in progress and, if a node is named, from that node.
func CancelEvacuation(vmi *v1.VirtualMachineInstance, node string) error {
	switch marked := vmi.Status.EvacuationNodeName; {
	case marked == "":
		return verb.GuestConflict(vmi, "VMI is not marked for evacuation")
	case node != "" && node != marked:
		return verb.GuestConflict(vmi, fmt.Sprintf("VMI is marked for evacuation from node %s, not from node %s", marked, objectevent.Fit(node)))
	}
	return nil
}

// virt-controller then cancels migrations that have not begun.
func (s *Server) cancelEvacuationOfInstance(w http.ResponseWriter, r *http.Request) error {
	return s.cancelEvacuation(w, r, func(ctx context.Context, name types.NamespacedName) (*v1.VirtualMachineInstance, error) {
		vmi := &v1.VirtualMachineInstance{}
		return vmi, s.cluster.Get(ctx, name, vmi)
	})
}

func (s *Server) cancelEvacuationOfMachine(w http.ResponseWriter, r *http.Request) error {
	return s.cancelEvacuation(w, r, func(ctx context.Context, name types.NamespacedName) (*v1.VirtualMachineInstance, error) {
		vm, vmi, err := s.read(ctx, name)
		if err == nil && vmi == nil {
			err = verb.Conflict(vm, "VM is not running")
		}
		return vmi, err
	})
}

func (s *Server) cancelEvacuation(w http.ResponseWriter, r *http.Request, read func(context.Context, types.NamespacedName) (*v1.VirtualMachineInstance, error)) error {
	options, err := readOptions[v1.EvacuateCancelOptions](r)
	if err != nil {
		return err
	}
	var refusal error
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		vmi, err := read(r.Context(), key(r))
		if err != nil {
			return err
		}
		if refusal = CancelEvacuation(vmi, options.EvacuationNodeName); refusal != nil {
			return nil // This conflict is not worth a retry.
		}
		conditional := client.MergeFromWithOptions(vmi, client.MergeFromWithOptimisticLock{})
		return s.cluster.Patch(r.Context(), evacuation.Clear(vmi), conditional, &client.PatchOptions{DryRun: slices.Clone(options.DryRun)})
	})
	if err := cmp.Or(err, refusal); err != nil {
		return err
	}
	w.WriteHeader(http.StatusAccepted)
	return nil
}
