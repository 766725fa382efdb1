package clientgo

import (
	"context"
	"net"
	"testing"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	v1 "kubevirt.io/api/core/v1"
)

// life is a VM whose guest the tests of all verbs share.
type life struct{ namespace, name string }

// TestVerbsOnAGuestThatRuns uses each verb that needs a running guest. The guest is shared, because each verb leaves it
// as the next one needs it; other tests cover the refusals without a guest.
func TestVerbsOnAGuestThatRuns(t *testing.T) {
	t.Parallel()
	l := life{newNamespace(t), "life"}
	vm := newVM(l.name, v1.RunStrategyHalted)
	// An external controller handles evictions; and the namespace's deletion does not wait for the guest.
	external, atOnce := v1.EvictionStrategyExternal, int64(0)
	vm.Spec.Template.Spec.EvictionStrategy, vm.Spec.Template.Spec.TerminationGracePeriodSeconds = &external, &atOnce
	create(t, l.namespace, vm)
	for _, chapter := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"it starts paused", l.startsPaused},
		{"consoles", l.consoles},
		{"screens", l.screens},
		{"ports", l.ports},
		{"the guest agent answers", l.agent},
		{"pause and unpause", l.pause},
		{"a soft reboot keeps the VMI", l.softReboot},
		{"a reset keeps the VMI", l.reset},
		{"an eviction that somebody else looks after", l.eviction},
		{"migration", l.migration},
		{"restart", l.restart},
		{"stop", l.stop},
	} {
		if !t.Run(chapter.name, chapter.run) {
			t.FailNow()
		}
	}
}

// vmi returns the present VMI.
func (l life) vmi(t *testing.T) *v1.VirtualMachineInstance {
	t.Helper()
	vmi, err := virt.VirtualMachineInstance(l.namespace).Get(t.Context(), l.name, metav1.GetOptions{})
	if err != nil {
		t.Fatalf("reading the VMI: %v", err)
	}
	return vmi
}

func (l life) startsPaused(t *testing.T) {
	vms := virt.VirtualMachine(l.namespace)
	awaitVM(t, l.namespace, l.name, "be stopped", printable(v1.VirtualMachineStatusStopped))
	if err := vms.Start(t.Context(), l.name, &v1.StartOptions{Paused: true}); err != nil {
		t.Fatalf("starting the VM paused: %v", err)
	}
	awaitVMI(t, l.namespace, l.name, "be paused", func(vmi *v1.VirtualMachineInstance) bool {
		return runs(vmi) && hasCondition(vmi, v1.VirtualMachineInstancePaused)
	})
	guest := openConsole(t, l.namespace, l.name)
	if err := virt.VirtualMachineInstance(l.namespace).Unpause(t.Context(), l.name, &v1.UnpauseOptions{}); err != nil {
		t.Fatalf("unpausing the VMI: %v", err)
	}
	guest.awaitReady()
	awaitVM(t, l.namespace, l.name, "be running", printable(v1.VirtualMachineStatusRunning))
	err := vms.Start(t.Context(), l.name, &v1.StartOptions{})
	mustFail(t, "starting a VM that runs", err, errors.IsConflict, "VM is already running")
}

func (l life) consoles(t *testing.T) {
	guest := openConsole(t, l.namespace, l.name)
	hostname, uuid := guest.identity()
	if hostname != l.name {
		t.Errorf("the guest calls itself %s, not %s", hostname, l.name)
	}
	if want := string(l.vmi(t).Spec.Domain.Firmware.UUID); uuid != want {
		t.Errorf("the guest sees the UUID %s, its spec says %s", uuid, want)
	}
	guest.login()
	if user := guest.run("id -un"); user != "guest" {
		t.Errorf("the guest says that %s is logged in", user)
	}

	// A second console shares the session; the first one must stay open.
	second := openConsole(t, l.namespace, l.name)
	second.login()
	if answer := second.run("echo two consoles"); answer != "two consoles" {
		t.Errorf("the second console says %q", answer)
	}
	if answer := guest.run("echo first again"); answer != "first again" {
		t.Errorf("the first console says %q", answer)
	}
}

func (l life) screens(t *testing.T) {
	// Two viewers at a time: both must be greeted, and the first must stay connected.
	first, second := openScreen(t, l.namespace, l.name), openScreen(t, l.namespace, l.name)
	for i, viewer := range []net.Conn{first, second} {
		if err := handshake(viewer); err != nil {
			t.Errorf("viewer %d: %v", i+1, err)
		}
	}
}

// ports uses the routes with the VMI's name and with the VM's.
func (l life) ports(t *testing.T) {
	vmis := virt.VirtualMachineInstance(l.namespace)
	vmi, err := vmis.PortForward(l.name, 7777, "tcp")
	if err != nil {
		t.Fatalf("forwarding the echo port of the VMI: %v", err)
	}
	echo(t, vmi, "through the VMI")
	if _, err := vmis.PortForward(l.name, 7777, "sctp"); err == nil {
		t.Error("a port of an unknown protocol was forwarded")
	}
	vm, err := virt.VirtualMachine(l.namespace).PortForward(l.name, 7777, "tcp")
	if err != nil {
		t.Fatalf("forwarding the echo port of the VM: %v", err)
	}
	echo(t, vm, "through the VM")
}

func (l life) agent(t *testing.T) {
	vmis := virt.VirtualMachineInstance(l.namespace)
	awaitVMI(t, l.namespace, l.name, "have its agent connected", func(vmi *v1.VirtualMachineInstance) bool {
		return hasCondition(vmi, v1.VirtualMachineInstanceAgentConnected)
	})
	info := askAgent(t, "OS", vmis.GuestOsInfo, l.name)
	if info.GAVersion == "" || info.Hostname != l.name || info.OS.KernelRelease == "" {
		t.Errorf("the agent's answer lacks the version, the hostname %s or the kernel: %+v", l.name, info)
	}
	users := askAgent(t, "users", vmis.UserList, l.name)
	for _, user := range users.Items {
		if user.UserName == "" || user.LoginTime > float64(time.Now().Add(time.Hour).Unix()) {
			t.Errorf("a user of the guest makes no sense: %+v", user)
		}
	}
	askAgent(t, "file systems", vmis.FilesystemList, l.name)
}

// askAgent asks again while the agent of a busy guest has not answered in time.
func askAgent[T any](t *testing.T, what string, ask func(context.Context, string) (T, error), name string) (answer T) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), time.Second, patience, true, func(ctx context.Context) (bool, error) {
		answer, last = ask(ctx, name)
		if errors.IsTooManyRequests(last) || last != nil && contains(last.Error(), "context deadline exceeded") {
			return false, nil
		}
		return true, last
	})
	if err != nil {
		t.Fatalf("asking for the guest's %s: %v (%v)", what, err, last)
	}
	return answer
}

func (l life) pause(t *testing.T) {
	vmis := virt.VirtualMachineInstance(l.namespace)
	guest := openConsole(t, l.namespace, l.name)
	guest.login()
	before := guest.bootID()

	if err := vmis.Pause(t.Context(), l.name, &v1.PauseOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		t.Fatalf("pausing the VMI in a dry run: %v", err)
	}
	if err := vmis.Pause(t.Context(), l.name, &v1.PauseOptions{}); err != nil {
		t.Fatalf("pausing the VMI: %v", err)
	}
	awaitVMI(t, l.namespace, l.name, "be paused", func(vmi *v1.VirtualMachineInstance) bool {
		return hasCondition(vmi, v1.VirtualMachineInstancePaused)
	})
	err := vmis.Pause(t.Context(), l.name, &v1.PauseOptions{})
	mustFail(t, "pausing a VMI that is paused", err, errors.IsConflict, "already paused")

	if err := vmis.Unpause(t.Context(), l.name, &v1.UnpauseOptions{}); err != nil {
		t.Fatalf("unpausing the VMI: %v", err)
	}
	awaitVMI(t, l.namespace, l.name, "run on", func(vmi *v1.VirtualMachineInstance) bool {
		return !hasCondition(vmi, v1.VirtualMachineInstancePaused)
	})
	err = vmis.Unpause(t.Context(), l.name, &v1.UnpauseOptions{})
	mustFail(t, "unpausing a VMI that runs", err, errors.IsConflict, "not paused")
	if after := guest.bootID(); after != before {
		t.Errorf("the guest was booted anew by a pause: %s, then %s", before, after)
	}
}

func (l life) softReboot(t *testing.T) {
	l.rebootKeepsTheVMI(t, "soft reboot", func() error { return virt.VirtualMachineInstance(l.namespace).SoftReboot(t.Context(), l.name) })
}

func (l life) reset(t *testing.T) {
	l.rebootKeepsTheVMI(t, "reset", func() error { return virt.VirtualMachineInstance(l.namespace).Reset(t.Context(), l.name) })
}

func (l life) rebootKeepsTheVMI(t *testing.T, what string, reboot func() error) {
	t.Helper()
	was := l.vmi(t)
	guest := openConsole(t, l.namespace, l.name)
	guest.login()
	before := guest.bootID()
	if err := reboot(); err != nil {
		t.Fatalf("asking for a %s: %v", what, err)
	}
	guest.awaitReady()
	guest.login()
	if after := guest.bootID(); after == before {
		t.Errorf("after a %s the guest still runs its boot %s", what, before)
	}
	if vmi := l.vmi(t); vmi.UID != was.UID || vmi.Status.Phase != v1.Running {
		t.Errorf("after a %s the VMI is %s in phase %s, want %s in Running", what, vmi.UID, vmi.Status.Phase, was.UID)
	}
}

// eviction evicts as a drain does, and reads the fields that Cluster API's provider reads.
func (l life) eviction(t *testing.T) {
	vmi := l.vmi(t)
	err := virt.CoreV1().Pods(l.namespace).EvictV1(t.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: l.namespace, Name: launcherOf(t, vmi)}})
	mustFail(t, "evicting the launcher pod", err, errors.IsTooManyRequests, `Eviction triggered evacuation of VMI "`+l.namespace+"/"+l.name+`": its evictionStrategy is External`)
	awaitVMI(t, l.namespace, l.name, "be marked", func(vmi *v1.VirtualMachineInstance) bool {
		return vmi.Status.EvacuationNodeName != "" && vmi.Status.EvacuationNodeName == vmi.Status.NodeName
	})
	if err := virt.VirtualMachineInstance(l.namespace).EvacuateCancel(t.Context(), l.name, &v1.EvacuateCancelOptions{}); err != nil {
		t.Fatalf("canceling the evacuation: %v", err)
	}
	still := awaitVMI(t, l.namespace, l.name, "lose the mark", func(vmi *v1.VirtualMachineInstance) bool { return vmi.Status.EvacuationNodeName == "" })
	if still.UID != vmi.UID || still.Status.NodeName != vmi.Status.NodeName || !runs(still) {
		t.Errorf("VMI %s on %s is now %s on %s, %s", vmi.UID, vmi.Status.NodeName, still.UID, still.Status.NodeName, still.Status.Phase)
	}
}

// KubeVirt's virtctl migrate and migrate-cancel do the same.
func (l life) migration(t *testing.T) {
	vms := virt.VirtualMachine(l.namespace)
	before := awaitVMI(t, l.namespace, l.name, "be migratable", func(vmi *v1.VirtualMachineInstance) bool {
		return runs(vmi) && hasCondition(vmi, v1.VirtualMachineInstanceIsMigratable)
	})
	guest := openConsole(t, l.namespace, l.name)
	guest.login()
	bootID := guest.bootID()

	if err := vms.Migrate(t.Context(), l.name, &v1.MigrateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		t.Fatalf("migrating the VM in a dry run: %v", err)
	}
	if all := migrationsOf(t, l.namespace, l.name); len(all) > 0 {
		t.Fatalf("a dry run has made %d migrations", len(all))
	}
	nowhereToGo(t, l.namespace, l.name)

	if err := vms.Migrate(t.Context(), l.name, &v1.MigrateOptions{}); err != nil {
		t.Fatalf("migrating the VM: %v", err)
	}
	after := awaitArrival(t, before)
	if err := handshake(openScreen(t, l.namespace, l.name)); err != nil {
		t.Errorf("opening the guest's screen where it has migrated: %v", err)
	}
	guest = openConsole(t, l.namespace, l.name)
	guest.login()
	if again := guest.bootID(); after.UID != before.UID || again != bootID {
		t.Errorf("the VMI %s with the boot %s is now %s with %s", before.UID, bootID, after.UID, again)
	}
}

func (l life) restart(t *testing.T) {
	first, now := l.vmi(t), int64(0)
	if err := virt.VirtualMachine(l.namespace).Restart(t.Context(), l.name, &v1.RestartOptions{GracePeriodSeconds: &now}); err != nil {
		t.Fatalf("restarting the VM: %v", err)
	}
	second := awaitVMI(t, l.namespace, l.name, "run again", func(vmi *v1.VirtualMachineInstance) bool {
		return runs(vmi) && vmi.UID != first.UID
	})
	if got, want := second.Spec.Domain.Firmware.UUID, first.Spec.Domain.Firmware.UUID; got != want {
		t.Errorf("the restart changed the firmware UUID from %s to %s", want, got)
	}
}

func (l life) stop(t *testing.T) {
	vms, now := virt.VirtualMachine(l.namespace), int64(0)
	if err := vms.Stop(t.Context(), l.name, &v1.StopOptions{GracePeriod: &now}); err != nil {
		t.Fatalf("stopping the VM: %v", err)
	}
	awaitNoVMI(t, l.namespace, l.name)
	vm := awaitVM(t, l.namespace, l.name, "be stopped again", printable(v1.VirtualMachineStatusStopped))
	if strategy, err := vm.RunStrategy(); err != nil || strategy != v1.RunStrategyHalted {
		t.Errorf("after a stop the run strategy is %s (%v), want Halted", strategy, err)
	}
	err := vms.Stop(t.Context(), l.name, &v1.StopOptions{})
	mustFail(t, "stopping a VM that is stopped", err, errors.IsConflict, "VM is not running")
	err = vms.Restart(t.Context(), l.name, &v1.RestartOptions{})
	mustFail(t, "restarting a VM that is stopped", err, errors.IsConflict, "Halted does not support manual restart requests")
}
