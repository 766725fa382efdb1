package clientgo

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
)

func TestPauseAndUnpauseAVMI(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	const name = "pause"
	vmis := virt.VirtualMachineInstance(namespace)
	createVMI(t, namespace, name)
	guest := openConsole(t, namespace, name)
	guest.login()
	before := guest.bootID()

	if err := vmis.Pause(t.Context(), name, &v1.PauseOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		t.Fatalf("pausing the VMI in a dry run: %v", err)
	}
	if err := vmis.Pause(t.Context(), name, &v1.PauseOptions{}); err != nil {
		t.Fatalf("pausing the VMI: %v", err)
	}
	awaitVMI(t, namespace, name, "be paused", func(vmi *v1.VirtualMachineInstance) bool {
		return hasCondition(vmi, v1.VirtualMachineInstancePaused)
	})
	err := vmis.Pause(t.Context(), name, &v1.PauseOptions{})
	mustFail(t, "pausing a VMI that is paused", err, errors.IsConflict, "already paused")

	if err := vmis.Unpause(t.Context(), name, &v1.UnpauseOptions{}); err != nil {
		t.Fatalf("unpausing the VMI: %v", err)
	}
	awaitVMI(t, namespace, name, "run on", func(vmi *v1.VirtualMachineInstance) bool {
		return !hasCondition(vmi, v1.VirtualMachineInstancePaused)
	})
	err = vmis.Unpause(t.Context(), name, &v1.UnpauseOptions{})
	mustFail(t, "unpausing a VMI that runs", err, errors.IsConflict, "not paused")
	if after := guest.bootID(); after != before {
		t.Errorf("the guest was booted anew by a pause: %s, then %s", before, after)
	}
}

func TestRebootsKeepTheVMI(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	vmis := virt.VirtualMachineInstance(namespace)
	for name, reboot := range map[string]func() error{
		"soft-reboot": func() error { return vmis.SoftReboot(t.Context(), "soft-reboot") },
		"reset":       func() error { return vmis.Reset(t.Context(), "reset") },
	} {
		created := createVMI(t, namespace, name)
		guest := openConsole(t, namespace, name)
		guest.login()
		before := guest.bootID()
		if err := reboot(); err != nil {
			t.Fatalf("asking for a %s: %v", name, err)
		}
		guest.awaitReady()
		guest.login()
		if after := guest.bootID(); after == before {
			t.Errorf("after a %s the guest still runs its boot %s", name, before)
		}
		vmi, err := vmis.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatalf("reading the VMI: %v", err)
		}
		if vmi.UID != created.UID || vmi.Status.Phase != v1.Running {
			t.Errorf("after a %s the VMI is %s in phase %s, want %s in Running", name, vmi.UID, vmi.Status.Phase, created.UID)
		}
		if err := vmis.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Errorf("deleting the VMI: %v", err)
		}
	}
}

func TestTheGuestAgentAnswers(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	const name = "agent"
	vmis := virt.VirtualMachineInstance(namespace)
	createVMI(t, namespace, name)
	awaitVMI(t, namespace, name, "have its agent connected", func(vmi *v1.VirtualMachineInstance) bool {
		return hasCondition(vmi, v1.VirtualMachineInstanceAgentConnected)
	})
	info, err := vmis.GuestOsInfo(t.Context(), name)
	if err != nil {
		t.Fatalf("asking for the guest's OS: %v", err)
	}
	if info.GAVersion == "" || info.Hostname != name || info.OS.KernelRelease == "" {
		t.Errorf("the agent's answer lacks the version, the hostname %s or the kernel: %+v", name, info)
	}
	users, err := vmis.UserList(t.Context(), name)
	if err != nil {
		t.Fatalf("asking for the guest's users: %v", err)
	}
	for _, user := range users.Items {
		if user.UserName == "" || user.LoginTime > float64(time.Now().Add(time.Hour).Unix()) {
			t.Errorf("a user of the guest makes no sense: %+v", user)
		}
	}
	if _, err := vmis.FilesystemList(t.Context(), name); err != nil {
		t.Errorf("asking for the guest's file systems: %v", err)
	}
}
