package clientgo

import (
	"context"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	backupv1 "kubevirt.io/api/backup/v1alpha1"
	v1 "kubevirt.io/api/core/v1"
	kvcorev1 "kubevirt.io/client-go/kubevirt/typed/core/v1"
)

type verb struct {
	name string
	call func(ctx context.Context) error
	// Without is the verb must succeed.
	is       func(error) bool
	sentence string
}

func (v verb) sequence() sequence {
	return sequence{v.name, func(ctx context.Context) error {
		err := v.call(ctx)
		if v.is == nil {
			return err
		}
		return refused(err, v.is, v.sentence)
	}}
}

func sequencesOf(verbs []verb) []sequence {
	var all []sequence
	for _, v := range verbs {
		all = append(all, v.sequence())
	}
	return all
}

var dry = []string{metav1.DryRunAll}

// addition adds a volume on a claim.
func addition(name string) *v1.AddVolumeOptions {
	return &v1.AddVolumeOptions{
		Name:         name,
		Disk:         &v1.Disk{Name: name, DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusSCSI}}},
		VolumeSource: &v1.HotplugVolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{}},
		DryRun:       dry,
	}
}

// Most verbs must be refused.
func TestVerbsOnAHaltedVM(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	const name = "halted"
	createVM(t, namespace, name, v1.RunStrategyHalted)
	vms := virt.VirtualMachine(namespace)
	added := addition("added")
	added.VolumeSource.PersistentVolumeClaim.ClaimName = "claim"
	runAll(t, sequencesOf([]verb{
		{name: "it can be started, for a try", call: func(ctx context.Context) error { return vms.Start(ctx, name, &v1.StartOptions{DryRun: dry}) }},
		{name: "it is still off after the try", call: func(ctx context.Context) error {
			vm, err := vms.Get(ctx, name, metav1.GetOptions{})
			if err == nil && (vm.Spec.RunStrategy == nil || *vm.Spec.RunStrategy != v1.RunStrategyHalted) {
				err = fmt.Errorf("its spec is %+v", vm.Spec)
			}
			return err
		}},
		{"it can't be stopped", func(ctx context.Context) error { return vms.Stop(ctx, name, &v1.StopOptions{}) }, errors.IsConflict, "VM is not running"},
		{"it can't be restarted", func(ctx context.Context) error { return vms.Restart(ctx, name, &v1.RestartOptions{}) }, errors.IsConflict, "Halted does not support manual restart requests"},
		{"it can't migrate", func(ctx context.Context) error { return vms.Migrate(ctx, name, &v1.MigrateOptions{}) }, errors.IsConflict, "VM is not running"},
		{name: "a volume can be added, for a try", call: func(ctx context.Context) error { return vms.AddVolume(ctx, name, added) }},
		{"a volume needs a name", func(ctx context.Context) error { return vms.AddVolume(ctx, name, &v1.AddVolumeOptions{}) }, errors.IsBadRequest, "name"},
		{"a volume of a name in use can't be added", func(ctx context.Context) error {
			twice := added
			twice.Name, twice.Disk.Name = "root", "root"
			return vms.AddVolume(ctx, name, twice)
		}, errors.IsConflict, "root"},
		{"a volume that it has not can't be removed", func(ctx context.Context) error {
			return vms.RemoveVolume(ctx, name, &v1.RemoveVolumeOptions{Name: "unknown"})
		}, errors.IsConflict, "unknown"},
		{"a volume that is not hotpluggable can't be removed", func(ctx context.Context) error {
			return vms.RemoveVolume(ctx, name, &v1.RemoveVolumeOptions{Name: "root"})
		}, errors.IsConflict, "root"},
		{name: "its expanded spec can be read", call: func(ctx context.Context) error {
			vm, err := vms.GetWithExpandedSpec(ctx, name)
			if err == nil && vm.Spec.Template.Spec.Domain.Memory == nil {
				err = fmt.Errorf("the expanded spec has no memory")
			}
			return err
		}},
		{"the expanded spec of nobody can't be read", func(ctx context.Context) error {
			_, err := vms.GetWithExpandedSpec(ctx, "nobody")
			return err
		}, errors.IsNotFound, "nobody"},
		{"an evacuation that is not can't be canceled", func(ctx context.Context) error {
			return vms.EvacuateCancel(ctx, name, &v1.EvacuateCancelOptions{})
		}, errors.IsConflict, "VM is not running"},
		{"its ports can't be reached", func(context.Context) error {
			stream, err := vms.PortForward(name, 22, "tcp")
			if err == nil {
				return stream.AsConn().Close()
			}
			return err
		}, anyError, ""},
		{"its memory can't be dumped", func(ctx context.Context) error {
			return vms.MemoryDump(ctx, name, &v1.VirtualMachineMemoryDumpRequest{ClaimName: "dump"})
		}, errors.IsConflict, "VM is not running"},
		{"a dump that is not can't be removed", func(ctx context.Context) error { return vms.RemoveMemoryDump(ctx, name) }, errors.IsConflict, "has no memory dump to remove"},
		{"its graph of objects is refused with a sentence", func(ctx context.Context) error {
			_, err := vms.ObjectGraph(ctx, name, &v1.ObjectGraphOptions{})
			return err
		}, errors.IsNotFound, "not supported by Drydock"},
		{"start, stop, restart and migration of nobody are not found", func(ctx context.Context) error {
			for _, err := range []error{vms.Restart(ctx, "nobody", &v1.RestartOptions{}), vms.Migrate(ctx, "nobody", &v1.MigrateOptions{}), vms.AddVolume(ctx, "nobody", added)} {
				if err := refused(err, errors.IsNotFound, "nobody"); err != nil {
					return err
				}
			}
			return vms.Stop(ctx, "nobody", &v1.StopOptions{})
		}, errors.IsNotFound, "nobody"},
	}))
}

// The client knows only the connection's status code.
func anyError(err error) bool { return err != nil }

// One VMI waits for a node, one is missing.
func TestVerbsOnAGuestThatIsNotThere(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	const name = "waiting"
	vmi := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: waiting(name)}
	if _, err := virt.VirtualMachineInstance(namespace).Create(t.Context(), vmi, metav1.CreateOptions{}); err != nil {
		t.Fatalf("creating the VMI: %v", err)
	}
	var verbs []verb
	for _, v := range guestVerbs(virt.VirtualMachineInstance(namespace)) {
		verbs = append(verbs,
			verb{v.name + ", while it waits for a node", func(ctx context.Context) error { return v.call(ctx, name) }, v.refusal(errors.IsConflict), ""},
			verb{v.name + ", of nobody", func(ctx context.Context) error { return v.call(ctx, "nobody") }, v.refusal(errors.IsNotFound), ""})
	}
	runAll(t, sequencesOf(verbs))
}

type guestVerb struct {
	name string
	call func(ctx context.Context, name string) error
	// Drydock answers NotFound.
	unsupported bool
	// The client reports only that it failed.
	stream bool
}

func (v guestVerb) refusal(is func(error) bool) func(error) bool {
	switch {
	case v.stream:
		return anyError
	case v.unsupported:
		return errors.IsNotFound
	}
	return is
}

func guestVerbs(vmis kvcorev1.VirtualMachineInstanceInterface) []guestVerb {
	opened := func(stream kvcorev1.StreamInterface, err error) error {
		if err == nil {
			err = stream.AsConn().Close()
		}
		return err
	}
	return []guestVerb{
		{name: "pause", call: func(ctx context.Context, name string) error { return vmis.Pause(ctx, name, &v1.PauseOptions{}) }},
		{name: "unpause", call: func(ctx context.Context, name string) error { return vmis.Unpause(ctx, name, &v1.UnpauseOptions{}) }},
		{name: "freeze", call: func(ctx context.Context, name string) error { return vmis.Freeze(ctx, name, time.Second) }},
		{name: "unfreeze", call: vmis.Unfreeze},
		{name: "reset", call: vmis.Reset},
		{name: "soft reboot", call: vmis.SoftReboot},
		{name: "the guest's OS", call: func(ctx context.Context, name string) error { _, err := vmis.GuestOsInfo(ctx, name); return err }},
		{name: "the guest's users", call: func(ctx context.Context, name string) error { _, err := vmis.UserList(ctx, name); return err }},
		{name: "the guest's file systems", call: func(ctx context.Context, name string) error { _, err := vmis.FilesystemList(ctx, name); return err }},
		{name: "adding a volume without a name", call: func(ctx context.Context, name string) error {
			return vmis.AddVolume(ctx, name, &v1.AddVolumeOptions{})
		}, stream: true},
		{name: "removing a volume that is not there", call: func(ctx context.Context, name string) error {
			return vmis.RemoveVolume(ctx, name, &v1.RemoveVolumeOptions{Name: "unknown"})
		}},
		{name: "the console", call: func(_ context.Context, name string) error {
			return opened(vmis.SerialConsole(name, &kvcorev1.SerialConsoleOptions{ConnectionTimeout: time.Second}))
		}, stream: true},
		{name: "the screen", call: func(_ context.Context, name string) error { return opened(vmis.VNC(name, true)) }, stream: true},
		{name: "a port", call: func(_ context.Context, name string) error { return opened(vmis.PortForward(name, 22, "tcp")) }, stream: true},
		{name: "a USB device", call: func(_ context.Context, name string) error { return opened(vmis.USBRedir(name)) }, stream: true},
		{name: "a socket", call: func(_ context.Context, name string) error {
			return opened(vmis.VSOCK(name, &v1.VSOCKOptions{TargetPort: 22}))
		}, stream: true},
		{name: "a backup", call: func(ctx context.Context, name string) error { return vmis.Backup(ctx, name, &backupv1.BackupOptions{}) }, unsupported: true},
		{name: "the measurement of its memory", call: func(ctx context.Context, name string) error {
			_, err := vmis.SEVQueryLaunchMeasurement(ctx, name)
			return err
		}, unsupported: true},
		{name: "the chain of its certificates", call: func(ctx context.Context, name string) error {
			_, err := vmis.SEVFetchCertChain(ctx, name)
			return err
		}, unsupported: true},
		{name: "the graph of its objects", call: func(ctx context.Context, name string) error {
			_, err := vmis.ObjectGraph(ctx, name, &v1.ObjectGraphOptions{})
			return err
		}, unsupported: true},
	}
}

// TestAVMWithoutANode follows a VM's life when no node can run it.
func TestAVMWithoutANode(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	const name = "homeless"
	vms, vmis := virt.VirtualMachine(namespace), virt.VirtualMachineInstance(namespace)
	manual := v1.RunStrategyManual
	vm := &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.VirtualMachineSpec{
		RunStrategy: &manual, Template: &v1.VirtualMachineInstanceTemplateSpec{Spec: waiting(name)},
	}}
	now := int64(0)
	runAll(t, []sequence{
		{"a manual VM waits for its start", func(ctx context.Context) error {
			if _, err := vms.Create(ctx, vm, metav1.CreateOptions{}); err != nil {
				return fmt.Errorf("creating: %w", err)
			}
			awaitVM(t, namespace, name, "be stopped", printable(v1.VirtualMachineStatusStopped))
			_, err := vmis.Get(ctx, name, metav1.GetOptions{})
			return refused(err, errors.IsNotFound, name)
		}},
		{"a start makes a VMI of its own", func(ctx context.Context) error {
			if err := vms.Start(ctx, name, &v1.StartOptions{}); err != nil {
				return fmt.Errorf("starting: %w", err)
			}
			vmi := awaitVMI(t, namespace, name, "be made", func(*v1.VirtualMachineInstance) bool { return true })
			if owner := metav1.GetControllerOf(vmi); owner == nil || owner.Name != name || owner.Kind != "VirtualMachine" {
				return fmt.Errorf("its owner is %+v", owner)
			}
			return nil
		}},
		{"the VM says that no node can take it", func(context.Context) error {
			awaitVM(t, namespace, name, "be unschedulable", printable(v1.VirtualMachineStatusUnschedulable))
			return nil
		}},
		{"who starts it again is told that it was started", func(ctx context.Context) error {
			return refused(vms.Start(ctx, name, &v1.StartOptions{}), errors.IsConflict, "already")
		}},
		{"it can't migrate without a guest", func(ctx context.Context) error {
			return refused(vms.Migrate(ctx, name, &v1.MigrateOptions{}), errors.IsConflict, "VM is not running")
		}},
		{"what can't be changed while it runs is kept for the next start", func(ctx context.Context) error {
			more := resource.MustParse("160Mi")
			return retry.RetryOnConflict(retry.DefaultBackoff, func() error { // its status changes meanwhile
				read, err := vms.Get(ctx, name, metav1.GetOptions{})
				if err != nil {
					return fmt.Errorf("reading: %w", err)
				}
				read.Spec.Template.Spec.Domain.Memory.Guest = &more
				if _, err := vms.Update(ctx, read, metav1.UpdateOptions{}); err != nil {
					return fmt.Errorf("updating: %w", err)
				}
				return nil
			})
		}},
		{"a stop takes the VMI away", func(ctx context.Context) error {
			if err := vms.Stop(ctx, name, &v1.StopOptions{GracePeriod: &now}); err != nil {
				return fmt.Errorf("stopping: %w", err)
			}
			awaitNoVMI(t, namespace, name)
			stopped := awaitVM(t, namespace, name, "be stopped again", printable(v1.VirtualMachineStatusStopped))
			strategy, err := stopped.RunStrategy()
			if err == nil && strategy != v1.RunStrategyManual {
				err = fmt.Errorf("its run strategy became %s, want Manual", strategy)
			}
			return err
		}},
		{"the next start has what was changed", func(ctx context.Context) error {
			if err := vms.Start(ctx, name, &v1.StartOptions{}); err != nil {
				return fmt.Errorf("starting: %w", err)
			}
			vmi := awaitVMI(t, namespace, name, "be made", func(*v1.VirtualMachineInstance) bool { return true })
			if got := vmi.Spec.Domain.Memory.Guest.String(); got != "160Mi" {
				return fmt.Errorf("it has %s of memory, want 160Mi", got)
			}
			return nil
		}},
		{"a VM that goes takes its VMI along", func(ctx context.Context) error {
			foreground := metav1.DeletePropagationForeground
			if err := vms.Delete(ctx, name, metav1.DeleteOptions{PropagationPolicy: &foreground}); err != nil {
				return fmt.Errorf("deleting: %w", err)
			}
			awaitNoVMI(t, namespace, name)
			awaitDeleted(t, listWatch(name, vms.List, vms.Watch), &v1.VirtualMachine{}, "VM "+name)
			return nil
		}},
	})
}
