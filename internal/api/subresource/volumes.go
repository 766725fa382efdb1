package subresource

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/util/retry"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/api/validate"
	"drydock.dev/drydock/internal/api/validate/vmispec"
	"drydock.dev/drydock/internal/pagedlist"
	"drydock.dev/drydock/internal/rules/hotplug/hotplugspec"
	"drydock.dev/drydock/internal/rules/migration"
	"drydock.dev/drydock/internal/rules/storage/datavolume"
	"drydock.dev/drydock/internal/rules/storage/volumeclaim"
	"drydock.dev/drydock/internal/rules/vm/memorydump"
	"drydock.dev/drydock/internal/rules/vmi/verb"
)

func (s *Server) addToInstance(w http.ResponseWriter, r *http.Request) error {
	options, err := readOptions[v1.AddVolumeOptions](r)
	if err != nil {
		return err
	}
	if err := validAddition(v1.VirtualMachineInstanceGroupVersionKind.GroupKind(), key(r).Name, options); err != nil {
		return err
	}
	return s.editInstance(w, r, options.DryRun, func(ctx context.Context, vmi *v1.VirtualMachineInstance) error {
		before := vmi.Spec.DeepCopy()
		if err := hotplugspec.Add(&vmi.Spec, options); err != nil {
			return verb.GuestConflict(vmi, err.Error())
		}
		if errs := vmispec.ValidateAddition(&vmi.Spec, before, field.NewPath("spec")); len(errs) > 0 {
			return apierrors.NewInvalid(v1.VirtualMachineInstanceGroupVersionKind.GroupKind(), vmi.Name, errs)
		}
		hotplugspec.NoteAdded(vmi, options.Name)
		return s.available(ctx, vmi, options)
	})
}

func (s *Server) removeFromInstance(w http.ResponseWriter, r *http.Request) error {
	options, err := readOptions[v1.RemoveVolumeOptions](r)
	if err != nil {
		return err
	}
	if err := validRemoval(options); err != nil {
		return err
	}
	byForce, err := forced(r)
	if err != nil {
		return err
	}
	return s.editInstance(w, r, options.DryRun, func(_ context.Context, vmi *v1.VirtualMachineInstance) error {
		if byForce {
			if err := hotplugspec.NoteForced(vmi, options.Name); err != nil {
				return verb.GuestConflict(vmi, err.Error())
			}
			return nil
		}
		if err := hotplugspec.Remove(&vmi.Spec, options.Name); err != nil {
			return verb.GuestConflict(vmi, err.Error())
		}
		hotplugspec.NoteRemoved(vmi, options.Name)
		return nil
	})
}

func (s *Server) editInstance(w http.ResponseWriter, r *http.Request, dryRun []string,
	edit func(context.Context, *v1.VirtualMachineInstance) error) error {
	return s.untilWritten(w, func() (refusal, failure error) {
		vmi := &v1.VirtualMachineInstance{}
		if err := s.cluster.Get(r.Context(), key(r), vmi); err != nil {
			return nil, err
		}
		if err := Pluggable(vmi); err != nil {
			return err, nil
		}
		if refusal, failure = s.held(r.Context(), vmi); refusal != nil || failure != nil {
			return refusal, failure
		}
		changed := vmi.DeepCopy()
		if err := edit(r.Context(), changed); err != nil {
			return err, nil
		}
		return nil, s.write(r.Context(), vmi, changed, dryRun)
	})
}

func (s *Server) held(ctx context.Context, vmi *v1.VirtualMachineInstance) (refusal, failure error) {
	owner := metav1.GetControllerOf(vmi)
	if owner == nil || owner.Kind != v1.VirtualMachineGroupVersionKind.Kind {
		return nil, nil
	}
	vm := &v1.VirtualMachine{}
	if err := s.cluster.Get(ctx, client.ObjectKey{Namespace: vmi.Namespace, Name: owner.Name}, vm); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return HeldDisks(vm, func(sentence string) error { return verb.GuestConflict(vmi, sentence) }), nil
}

// HeldDisks refuses to change the volumes of a VM or of its guest during a snapshot or a restore. virt-api writes the
// change under its own name, so admission does not check that.
func HeldDisks(vm *v1.VirtualMachine, refuse func(sentence string) error) error {
	by := validate.DisksHeldBy(vm)
	if by == "" {
		return nil
	}
	return refuse(fmt.Sprintf("its disks are needed as they are by the %s: its volumes can't be changed until that has ended", by))
}

func (s *Server) addToMachine(w http.ResponseWriter, r *http.Request) error {
	options, err := readOptions[v1.AddVolumeOptions](r)
	if err != nil {
		return err
	}
	if err := validAddition(v1.VirtualMachineGroupVersionKind.GroupKind(), key(r).Name, options); err != nil {
		return err
	}
	return s.editMachine(w, r, options.DryRun, func(ctx context.Context, vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance) error {
		before := vm.Spec.Template.Spec.DeepCopy()
		if err := hotplugspec.Add(&vm.Spec.Template.Spec, options); err != nil {
			return verb.Conflict(vm, "%v", err)
		}
		if errs := vmispec.ValidateAddition(&vm.Spec.Template.Spec, before, field.NewPath("spec", "template", "spec")); len(errs) > 0 {
			return apierrors.NewInvalid(v1.VirtualMachineGroupVersionKind.GroupKind(), vm.Name, errs)
		}
		if !verb.Active(vmi) {
			return nil // Missing objects may be created before it starts.
		}
		if err := Pluggable(vmi); err != nil {
			return err
		}
		// A volume that was added only to the VMI may conflict.
		probe := vmi.DeepCopy()
		if v := volumeclaim.Named(vmi.Spec.Volumes, options.Name); v == nil {
			if err := hotplugspec.Add(&probe.Spec, options); err != nil {
				return verb.Conflict(vm, "%v", err)
			}
		} else if volumeclaim.Disk(&v.VolumeSource) != volumeclaim.Disk(&volumeclaim.Named(vm.Spec.Template.Spec.Volumes, options.Name).VolumeSource) {
			return verb.Conflict(vm, "Unable to add volume [%s] because the running VMI has a volume with that name already", options.Name)
		}
		return s.available(ctx, vmi, options)
	})
}

func (s *Server) removeFromMachine(w http.ResponseWriter, r *http.Request) error {
	options, err := readOptions[v1.RemoveVolumeOptions](r)
	if err != nil {
		return err
	}
	if err := validRemoval(options); err != nil {
		return err
	}
	if byForce, err := forced(r); err != nil {
		return err
	} else if byForce {
		return apierrors.NewBadRequest("force is about the guest that runs: ask for it on the VirtualMachineInstance, after the volume was removed from the VirtualMachine")
	}
	return s.editMachine(w, r, options.DryRun, func(_ context.Context, vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance) error {
		if err := hotplugspec.Remove(&vm.Spec.Template.Spec, options.Name); err != nil {
			return verb.Conflict(vm, "%v", err)
		}
		if verb.Active(vmi) {
			return notMigrating(vmi)
		}
		return nil
	})
}

// editMachine changes a VM's template. virt-controller then updates the VMI, if there is one.
func (s *Server) editMachine(w http.ResponseWriter, r *http.Request, dryRun []string,
	edit func(context.Context, *v1.VirtualMachine, *v1.VirtualMachineInstance) error) error {
	return s.untilWritten(w, func() (refusal, failure error) {
		vm, vmi, err := s.read(r.Context(), key(r))
		if err != nil {
			return nil, err
		}
		if vm.Spec.Template == nil {
			return verb.Conflict(vm, "the VM has no template"), nil
		}
		if err := HeldDisks(vm, func(sentence string) error { return verb.Conflict(vm, "%s", sentence) }); err != nil {
			return err, nil
		}
		changed := vm.DeepCopy()
		if err := edit(r.Context(), changed, vmi); err != nil {
			return err, nil
		}
		return nil, s.write(r.Context(), vm, changed, dryRun)
	})
}

// untilWritten repeats do after conflicts. A refusal is a conflict, too, but not worth a retry.
func (s *Server) untilWritten(w http.ResponseWriter, do func() (refusal, failure error)) error {
	var refused error
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		var failed error
		refused, failed = do()
		return failed
	})
	if err = errors.Join(refused, err); err != nil {
		if refused != nil {
			return refused
		}
		return err
	}
	w.WriteHeader(http.StatusAccepted)
	return nil
}

func (s *Server) write(ctx context.Context, from, to client.Object, dryRun []string) error {
	locked := client.MergeFromWithOptions(from, client.MergeFromWithOptimisticLock{})
	return s.cluster.Patch(ctx, to, locked, writeOptions(dryRun))
}

// Pluggable refuses to change the volumes of a guest that does not run or that is migrating.
func Pluggable(vmi *v1.VirtualMachineInstance) error {
	if err := verb.Ready(vmi); err != nil {
		return err
	}
	return notMigrating(vmi)
}

func notMigrating(vmi *v1.VirtualMachineInstance) error {
	if migration.InFlight(vmi) {
		return verb.GuestConflict(vmi, "VMI is migrating: its volumes can't be changed until it has arrived")
	}
	return nil
}

func validAddition(of schema.GroupKind, name string, o *v1.AddVolumeOptions) error {
	switch {
	case o.Name == "":
		return apierrors.NewBadRequest("AddVolumeOptions requires name to be set")
	case o.Disk == nil:
		return apierrors.NewBadRequest("AddVolumeOptions requires disk to not be nil")
	case o.VolumeSource == nil:
		return apierrors.NewBadRequest("AddVolumeOptions requires VolumeSource to not be nil")
	case (o.VolumeSource.DataVolume == nil) == (o.VolumeSource.PersistentVolumeClaim == nil):
		return apierrors.NewBadRequest("AddVolumeOptions requires exactly one of PersistentVolumeClaim and DataVolume")
	case o.VolumeSource.DataVolume != nil && o.VolumeSource.DataVolume.Name == "",
		o.VolumeSource.PersistentVolumeClaim != nil && o.VolumeSource.PersistentVolumeClaim.ClaimName == "":
		return apierrors.NewBadRequest("AddVolumeOptions requires the name of the claim or DataVolume")
	}
	spec := &v1.VirtualMachineInstanceSpec{}
	if o.Disk.CDRom != nil || hotplugspec.Add(spec, o) != nil {
		return nil // it is refused with a message of its own
	}
	if errs := vmispec.ValidateStorage(spec, nil); len(errs) > 0 {
		return apierrors.NewInvalid(of, name, errs)
	}
	return nil
}

func validRemoval(o *v1.RemoveVolumeOptions) error {
	if o.Name == "" {
		return apierrors.NewBadRequest("RemoveVolumeOptions requires name to be set")
	}
	return nil
}

// forced reads a query parameter, since KubeVirt's options have no field for it. Other servers ignore it.
func forced(r *http.Request) (bool, error) {
	text := r.URL.Query().Get("force")
	if text == "" {
		return false, nil
	}
	force, err := strconv.ParseBool(text)
	if err != nil {
		return false, apierrors.NewBadRequest(fmt.Sprintf("force is %q; it must be true or false", text))
	}
	return force, nil
}

// available refuses a disk that does not exist, has failed, or is in use by another VMI or by a memory dump.
func (s *Server) available(ctx context.Context, vmi *v1.VirtualMachineInstance, o *v1.AddVolumeOptions) error {
	var err error
	claim := ""
	if dv := o.VolumeSource.DataVolume; dv != nil {
		claim = dv.Name
		err = s.dataVolume(ctx, vmi, o.Name, dv.Name)
	} else {
		claim = o.VolumeSource.PersistentVolumeClaim.ClaimName
		err = s.claim(ctx, vmi, o.Name, claim)
	}
	if err != nil {
		return err
	}
	for _, name := range []string{o.Name, claim} {
		if why := memorydump.Occupied(vmi, name); why != "" {
			return unavailable(vmi, o.Name, "%s", why)
		}
	}
	use, err := s.unused(ctx, vmi, claim, o.Disk.Shareable != nil && *o.Disk.Shareable)
	if err == nil && use != "" {
		return unavailable(vmi, o.Name, "%s", use)
	}
	return err
}

func unavailable(vmi *v1.VirtualMachineInstance, volume, why string, args ...any) error {
	return verb.GuestConflict(vmi, fmt.Sprintf("Unable to add volume [%s] because ", volume)+fmt.Sprintf(why, args...))
}

func (s *Server) claim(ctx context.Context, vmi *v1.VirtualMachineInstance, volume, name string) error {
	claim := &corev1.PersistentVolumeClaim{}
	err := s.cluster.Get(ctx, client.ObjectKey{Namespace: vmi.Namespace, Name: name}, claim)
	switch {
	case apierrors.IsNotFound(err):
		return unavailable(vmi, volume, "PVC [%s] does not exist", name)
	case err != nil:
		return fmt.Errorf("reading PVC %s/%s: %w", vmi.Namespace, name, err)
	case claim.DeletionTimestamp != nil:
		return unavailable(vmi, volume, "PVC [%s] is being deleted", name)
	case claim.Status.Phase == corev1.ClaimLost:
		return unavailable(vmi, volume, "PVC [%s] has lost its persistent volume", name)
	}
	return nil
}

func (s *Server) dataVolume(ctx context.Context, vmi *v1.VirtualMachineInstance, volume, name string) error {
	dv := &cdiv1.DataVolume{}
	err := s.cluster.Get(ctx, client.ObjectKey{Namespace: vmi.Namespace, Name: name}, dv)
	switch {
	case apierrors.IsNotFound(err):
		// The claim of a DataVolume outlives it.
		if failed := s.claim(ctx, vmi, volume, name); failed != nil {
			return unavailable(vmi, volume, "DataVolume [%s] does not exist", name)
		}
		return nil
	case err != nil:
		return fmt.Errorf("reading DataVolume %s/%s: %w", vmi.Namespace, name, err)
	case dv.DeletionTimestamp != nil:
		return unavailable(vmi, volume, "DataVolume [%s] is being deleted", name)
	case dv.Status.Phase == cdiv1.Failed:
		return unavailable(vmi, volume, "DataVolume [%s] has failed%s", name, datavolume.FailureDetail(dv))
	}
	return nil
}

// unused returns how another VMI writes to a claim, "" for none or if both share it. The list is not older than the VMI. The
// newest state would cost up to 100 ms, and not separate two concurrent requests either.
func (s *Server) unused(ctx context.Context, vmi *v1.VirtualMachineInstance, claim string, shares bool) (use string, err error) {
	since := &client.ListOptions{Raw: &metav1.ListOptions{
		ResourceVersion: vmi.ResourceVersion, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
	}}
	uses, err := pagedlist.Collect(ctx, s.cluster, &v1.VirtualMachineInstanceList{}, func(other *v1.VirtualMachineInstance) (string, bool) {
		if other.UID == vmi.UID {
			return "", false
		}
		use := useOf(claim, other, shares)
		return use, use != ""
	}, client.InNamespace(vmi.Namespace), since)
	switch {
	case err != nil:
		return "", fmt.Errorf("looking for other users of PVC %s/%s: %w", vmi.Namespace, claim, err)
	case len(uses) > 0:
		return uses[0], nil
	}
	return "", nil
}

// useOf says how a VMI's guest writes to the claim, "" if it does not or if both share it.
func useOf(claim string, vmi *v1.VirtualMachineInstance, shares bool) string {
	if vmi.IsFinal() {
		return ""
	}
	if slices.Contains(volumeclaim.Destinations(vmi), claim) {
		return fmt.Sprintf("a disk of VirtualMachineInstance [%s] is being migrated to PVC [%s]", vmi.Name, claim)
	}
	if memorydump.Occupied(vmi, claim) != "" {
		return fmt.Sprintf("the memory of VirtualMachineInstance [%s] is being dumped to PVC [%s]", vmi.Name, claim)
	}
	for i := range vmi.Spec.Volumes {
		v := &vmi.Spec.Volumes[i]
		if volumeclaim.Disk(&v.VolumeSource) == claim && (!shares || !shared(vmi, v.Name)) {
			return fmt.Sprintf("PVC [%s] is in use by VirtualMachineInstance [%s] and is not shareable in both", claim, vmi.Name)
		}
	}
	return ""
}

func shared(vmi *v1.VirtualMachineInstance, disk string) bool {
	for i := range vmi.Spec.Domain.Devices.Disks {
		if d := &vmi.Spec.Domain.Devices.Disks[i]; d.Name == disk {
			return d.Shareable != nil && *d.Shareable
		}
	}
	return false
}
