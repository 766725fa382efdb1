package subresource

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/util/retry"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/answer"
	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/contracts/maintenance"
	"drydock.dev/drydock/internal/pagedlist"
	"drydock.dev/drydock/internal/podcreation"
	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
	"drydock.dev/drydock/internal/rules/maintenance/lock"
	"drydock.dev/drydock/internal/rules/maintenance/maintenancepod"
	"drydock.dev/drydock/internal/rules/pod/podlimits"
	"drydock.dev/drydock/internal/rules/vmi/verb"
)

// Maintenance configures maintenance pods.
type Maintenance struct {
	Settings func() clusterconfig.Settings
	// Image is the default image of the pods.
	Image string
}

// virt-api acts for the caller, who must have the right to create the same pod directly (decision 475).
func (s *Server) createMaintenance(w http.ResponseWriter, r *http.Request) error {
	body, err := readOptions[maintenance.Request](r)
	if err != nil {
		return err
	}
	if body.DeadlineSeconds < 0 {
		return apierrors.NewBadRequest(fmt.Sprintf("deadlineSeconds is %d; it must not be negative", body.DeadlineSeconds))
	}
	if err := s.demand(r.Context(), ofPods(r, "create"), "as a maintenance pod needs"); err != nil {
		return err
	}
	m, vmi, err := s.machine(r)
	if err != nil {
		return err
	}
	if m.GetDeletionTimestamp() != nil {
		return machineConflict(m, "the %s is being deleted", lock.Noun(m))
	}
	pod, err := s.maintenancePod(r.Context(), m, body)
	if err != nil {
		return err
	}
	options := &client.CreateOptions{DryRun: slices.Clone(body.DryRun), FieldManager: string(fieldOwner)}
	if err := podcreation.Create(r.Context(), s.cluster, s.cluster, pod, podlimits.Need{}, options); err != nil {
		return err
	}
	pods, err := s.maintenancePods(r.Context(), m)
	if err != nil {
		return err
	}
	state, created := Queue(m, vmi, pods), tell(pod)
	state.Created = &created
	return answer.JSON(w, http.StatusOK, state)
}

// The VMI of a VM is not a machine: its disks are the VM's.
func (s *Server) machine(r *http.Request) (lock.Machine, *v1.VirtualMachineInstance, error) {
	if !ofInstance(r) {
		vm, vmi, err := s.read(r.Context(), key(r))
		if err != nil {
			return nil, nil, err
		}
		return vm, vmi, nil
	}
	vmi := &v1.VirtualMachineInstance{}
	if err := s.cluster.Get(r.Context(), key(r), vmi); err != nil {
		return nil, nil, err
	}
	if owner := metav1.GetControllerOf(vmi); owner != nil {
		return nil, nil, verb.GuestConflict(vmi, fmt.Sprintf("the VMI belongs to the %s %s; only a VM, or a VMI of its own, can be taken to maintenance", owner.Kind, owner.Name))
	}
	return vmi, nil, nil
}

func ofInstance(r *http.Request) bool { return strings.Contains(r.Pattern, "/"+instances+"/") }

// asVM returns a VM with the machine's disks, which is never written.
func asVM(m lock.Machine) *v1.VirtualMachine {
	if vm, is := m.(*v1.VirtualMachine); is {
		return vm
	}
	vmi := m.(*v1.VirtualMachineInstance)
	return &v1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: vmi.Namespace, Name: vmi.Name, UID: vmi.UID},
		Spec:       v1.VirtualMachineSpec{Template: &v1.VirtualMachineInstanceTemplateSpec{Spec: vmi.Spec}},
	}
}

func (s *Server) maintenancePod(ctx context.Context, m lock.Machine, body *maintenance.Request) (*corev1.Pod, error) {
	vm, err := s.expanded(ctx, asVM(m))
	if err != nil {
		return nil, err
	}
	names, err := maintenancepod.Claims(vm, body)
	if err != nil {
		return nil, machineConflict(m, "%v", err)
	}
	claims := map[string]*corev1.PersistentVolumeClaim{}
	for _, name := range names {
		claim := &corev1.PersistentVolumeClaim{}
		switch err := s.cluster.Get(ctx, client.ObjectKey{Namespace: vm.Namespace, Name: name}, claim); {
		case apierrors.IsNotFound(err):
			// Rendering the pod reports which disk lacks its claim.
		case err != nil:
			return nil, fmt.Errorf("reading PVC %s/%s: %w", vm.Namespace, name, err)
		default:
			claims[name] = claim
		}
	}
	pod, err := maintenancepod.Render(maintenancepod.Input{
		VM: vm, Request: body, Settings: s.maintenance.Settings(), Image: s.maintenance.Image, Token: rand.String(10), Claims: claims,
	})
	if err != nil {
		refusal := machineConflict(m, "%v", err)
		if status := (*apierrors.StatusError)(nil); errors.Is(err, maintenancepod.ErrToCome) && errors.As(refusal, &status) {
			status.ErrStatus.Details.RetryAfterSeconds = 1
		}
		return nil, refusal
	}
	return pod, nil
}

func (s *Server) maintained(r *http.Request) (lock.Machine, *v1.VirtualMachineInstance, []corev1.Pod, error) {
	m, vmi, err := s.machine(r)
	if err != nil {
		return nil, nil, nil, err
	}
	pods, err := s.maintenancePods(r.Context(), m)
	return m, vmi, pods, err
}

func (s *Server) getMaintenance(w http.ResponseWriter, r *http.Request) error {
	vm, vmi, pods, err := s.maintained(r)
	if err != nil {
		return err
	}
	return answer.JSON(w, http.StatusOK, Queue(vm, vmi, pods))
}

// deleteMaintenance deletes the pod that holds the disks, or a waiting one. The lock is removed when the pod can no longer
// write.
func (s *Server) deleteMaintenance(w http.ResponseWriter, r *http.Request) error {
	options, err := readOptions[metav1.DeleteOptions](r)
	if err != nil {
		return err
	}
	byForce, err := forced(r)
	if err != nil {
		return err
	}
	if byForce {
		return s.forceRelease(w, r, options.DryRun)
	}
	if err := s.demand(r.Context(), ofPods(r, "delete"), "which a release is"); err != nil {
		return err
	}
	vm, vmi, pods, err := s.maintained(r)
	if err != nil {
		return err
	}
	pod, err := ToRelease(vm, pods, r.URL.Query().Get("pod"))
	if err != nil {
		return err
	}
	// The precondition protects a later pod of that name.
	same := client.Preconditions{UID: &pod.UID}
	err = s.cluster.Delete(r.Context(), pod, same, &client.DeleteOptions{DryRun: slices.Clone(options.DryRun)})
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	return answer.JSON(w, http.StatusOK, Queue(vm, vmi, pods))
}

// forceRelease asks virt-controller to remove the lock of a pod that no longer writes: the caller guarantees that, and
// needs a separate right, since a mistake destroys the disks' content.
func (s *Server) forceRelease(w http.ResponseWriter, r *http.Request, dryRun []string) error {
	name := key(r)
	right := authorizationv1.ResourceAttributes{
		Namespace: name.Namespace, Name: name.Name, Verb: "update", Group: GroupVersions[0].Group, Version: GroupVersions[0].Version,
		Resource: machines, Subresource: layout.MaintenanceForceVerb,
	}
	if ofInstance(r) {
		right.Resource = instances
	}
	if err := s.demand(r.Context(), right, "which a release by force needs: ask an administrator, or release without force"); err != nil {
		return err
	}
	caller, _ := request.UserFrom(r.Context())
	var refused error
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		m, _, err := s.machine(r)
		if err != nil {
			return err
		}
		var changed lock.Machine
		if changed, refused = ForcedRelease(m, r.URL.Query().Get("pod"), caller.GetName()); refused != nil {
			return nil
		}
		return s.write(r.Context(), m, changed, dryRun)
	})
	if refused != nil {
		return refused
	}
	if err != nil {
		return err
	}
	return s.getMaintenance(w, r)
}

func (s *Server) maintenancePods(ctx context.Context, m lock.Machine) ([]corev1.Pod, error) {
	pods, err := pagedlist.Pods(ctx, s.cluster, nil, func(*corev1.Pod) bool { return true }, client.InNamespace(m.GetNamespace()),
		client.MatchingLabels{layout.MaintenanceForLabel: layout.LabelValue(m.GetName())})
	if err != nil {
		return nil, fmt.Errorf("listing the maintenance pods of %s %s/%s: %w", lock.Noun(m), m.GetNamespace(), m.GetName(), err)
	}
	return pods, nil
}

func ofPods(r *http.Request, verb string) authorizationv1.ResourceAttributes {
	return authorizationv1.ResourceAttributes{Namespace: key(r).Namespace, Verb: verb, Version: "v1", Resource: "pods"}
}
