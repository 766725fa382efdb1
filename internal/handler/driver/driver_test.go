package driver

import (
	"context"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/handler/metrics"
	"drydock.dev/drydock/internal/handler/runningguest"
)

// These tests run real guests: virt-launcher in namespaces of its own, as user 107, with an emulated QEMU that has no
// disk to boot from. They need root.

func scheduled(uid string) *v1.VirtualMachineInstance {
	instance := &v1.VirtualMachineInstance{}
	instance.Namespace, instance.Name, instance.UID = "shop", "web", types.UID(uid)
	instance.Spec.TerminationGracePeriodSeconds = new(int64(1))
	instance.Spec.Domain.Firmware = &v1.Firmware{UUID: "5d307ca9-b3ef-428c-8861-06e72d69f223"}
	instance.Spec.Domain.Machine = &v1.Machine{Type: "pc-q35-7.2"}
	instance.Spec.Domain.Memory = &v1.Memory{Guest: new(resource.MustParse("64Mi"))}
	instance.Spec.Domain.Devices.Interfaces = []v1.Interface{{
		Name: "default", InterfaceBindingMethod: v1.InterfaceBindingMethod{Masquerade: &v1.InterfaceMasquerade{}},
	}}
	instance.Spec.Networks = []v1.Network{{Name: "default", NetworkSource: v1.NetworkSource{Pod: &v1.PodNetwork{}}}}
	instance.Spec.Domain.Devices.Disks = []v1.Disk{
		{Name: "scratch", DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusVirtio}}},
		{Name: "init", DiskDevice: v1.DiskDevice{CDRom: &v1.CDRomTarget{Bus: v1.DiskBusSATA}}},
	}
	instance.Spec.Volumes = []v1.Volume{
		{Name: "scratch", VolumeSource: v1.VolumeSource{EmptyDisk: &v1.EmptyDiskSource{Capacity: resource.MustParse("1Gi")}}},
		{Name: "init", VolumeSource: v1.VolumeSource{CloudInitNoCloud: &v1.CloudInitNoCloudSource{UserData: "#cloud-config\n"}}},
	}
	instance.Status.Phase = v1.Scheduled
	instance.Status.NodeName = "node1"
	instance.Labels = map[string]string{v1.NodeNameLabel: "node1"}
	instance.Status.ActivePods = map[types.UID]string{types.UID("pod-of-" + uid): "node1"}
	return instance
}

func phase(want v1.VirtualMachineInstancePhase) func(*v1.VirtualMachineInstance) bool {
	return func(instance *v1.VirtualMachineInstance) bool { return instance.Status.Phase == want }
}

func condition(instance *v1.VirtualMachineInstance, kind v1.VirtualMachineInstanceConditionType) *v1.VirtualMachineInstanceCondition {
	at := slices.IndexFunc(instance.Status.Conditions, func(c v1.VirtualMachineInstanceCondition) bool { return c.Type == kind })
	if at < 0 {
		return nil
	}
	return &instance.Status.Conditions[at]
}

// visibleFailure returns the failure in a VMI's status, "" for none.
func visibleFailure(vmi *v1.VirtualMachineInstance) string {
	if c := condition(vmi, v1.VirtualMachineInstanceSynchronized); c != nil && c.Status == corev1.ConditionFalse {
		return c.Message
	}
	return ""
}

func remove(instance *v1.VirtualMachineInstance) {
	instance.DeletionTimestamp = new(metav1.Now())
	instance.Finalizers = []string{v1.VirtualMachineInstanceFinalizer}
}

func TestLifeOfAGuest(t *testing.T) {
	t.Parallel()
	n := newNode(t, scheduled("life"))
	p := n.newPod(n.api.vmi)
	// The pod is known before the kubelet has made any of its folders.
	h := n.startHandler(p)
	p.start()
	running := n.api.await(t, "phase Running", phase(v1.Running))

	want := []v1.VirtualMachineInstanceNetworkInterface{{
		Name: "default", MAC: running.Status.Interfaces[0].MAC, IP: "10.244.9.5", IPs: []string{"10.244.9.5"},
		PodInterfaceName: "eth0", InfoSource: "domain", QueueCount: 1, LinkState: "up",
	}}
	if diff := cmp.Diff(want, running.Status.Interfaces); diff != "" {
		t.Errorf("interfaces (-want +got):\n%s", diff)
	}
	volumes := []v1.VolumeStatus{{Name: "init", Target: "sda"}, {Name: "scratch", Target: "vda", Size: 1 << 30}}
	if diff := cmp.Diff(volumes, running.Status.VolumeStatus); diff != "" {
		t.Errorf("volumes (-want +got):\n%s", diff)
	}
	if got := running.Status.Machine; got == nil || got.Type != "pc-q35-7.2" {
		t.Errorf("machine: %v", got)
	}
	if c := condition(running, v1.VirtualMachineInstanceReady); c == nil || c.Status != corev1.ConditionTrue {
		t.Errorf("Ready: %v", c)
	}
	if got := len(p.qemus()); got != 1 {
		t.Errorf("%d QEMUs run", got)
	}
	screen(t, h)
	measured(t, h)

	// QEMU's firmware finds nothing to boot and does not follow the power button.
	n.api.update(remove)
	ended := n.api.await(t, "the end", phase(v1.Succeeded))
	if c := condition(ended, v1.VirtualMachineInstanceReady); c == nil || c.Status != corev1.ConditionFalse ||
		c.Message != "The guest did not shut down within its grace period and was ended by force." {
		t.Errorf("Ready: %v", c)
	}
	h.supervisor.VMIGone(Here, ended.UID)
	h.stop()
	patches, outdated, events := n.api.counts()
	if patches != 2 || outdated != 0 {
		t.Errorf("a life cost %d patches and %d that were out of date: %v", patches, outdated, n.api.patches)
	}
	if diff := cmp.Diff([]string{
		"Normal Started: VirtualMachineInstance started.",
		"Normal Stopped: The guest did not shut down within its grace period and was ended by force.",
	}, events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// measured checks that the guest's usage is known.
func measured(t *testing.T, h *handler) {
	t.Helper()
	var u metrics.Usage
	awaitTrue(t, "figures of a QEMU whose events have been looked at", func() bool {
		usages := h.supervisor.Usage(t.Context())
		if len(usages) != 1 {
			t.Fatalf("usages: %+v", usages)
		}
		u = usages[0]
		return len(u.Drives) > 0
	})
	domain, _ := u.Guest[metrics.Domain].Value()
	resident, _ := u.Guest[metrics.Resident].Value()
	cpu, _ := u.Guest[metrics.CPU].Value()
	balloon, _ := u.Guest[metrics.Balloon].Value()
	if u.Name != "web" || domain != 64<<20 || resident < 1<<20 || cpu <= 0 || balloon < 64<<20 || balloon > 65<<20 { // the machine has a little more
		t.Errorf("usage: %+v", u)
	}
	if len(u.VCPUs) != 1 {
		t.Errorf("virtual CPUs: %+v", u.VCPUs)
	}
	if rounds := h.supervisor.Rounds()[types.NamespacedName{Namespace: "shop", Name: "web"}]; rounds == 0 {
		t.Error("the driver's rounds are not counted")
	}
	if len(u.Drives) != 2 || len(u.Interfaces) != 1 || u.Interfaces[0].Name != "default" {
		t.Errorf("drives %+v, interfaces %+v", u.Drives, u.Interfaces)
	}
}

// screen checks that the VNC server and the serial console can be reached.
func screen(t *testing.T, h *handler) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	m, err := h.supervisor.Lookup("shop", "web", "life")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.supervisor.Lookup("shop", "web", "another"); err == nil {
		t.Error("a VMI of another UID was found")
	}
	if _, err := h.supervisor.Lookup("other", "web", "life"); err == nil {
		t.Error("a VMI of another namespace was found")
	}
	conn, err := m.DialVNC(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	hello := make([]byte, 4)
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(hello); err != nil || string(hello) != "RFB " {
		t.Errorf("the screen says %q, %v", hello, err)
	}
	serial, err := m.DialSerial(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer serial.Close()
	if _, ok := serial.(*net.UnixConn); !ok {
		t.Errorf("the serial console is a %T", serial)
	}
}

func TestHandlerKilledWhileTheGuestRuns(t *testing.T) {
	t.Parallel()
	n := newNode(t, scheduled("takeover"))
	p := n.newPod(n.api.vmi)
	first := n.startHandler(p)
	p.start()
	n.api.await(t, "phase Running", phase(v1.Running))
	qemus := p.qemus()
	first.stop()
	if got := p.qemus(); !slices.Equal(got, qemus) {
		t.Fatalf("QEMU went with its virt-handler: %v, then %v", qemus, got)
	}

	second := n.startHandler(p)
	m := n.machine(second, "takeover")
	if err := m.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	paused := n.api.await(t, "condition Paused", func(instance *v1.VirtualMachineInstance) bool {
		return condition(instance, v1.VirtualMachineInstancePaused) != nil
	})
	if c := condition(paused, v1.VirtualMachineInstancePaused); c.Reason != "PausedByUser" || c.Status != corev1.ConditionTrue {
		t.Errorf("Paused: %v", c)
	}

	// The next virt-handler finds the guest paused, and writes nothing about it.
	second.stop()
	before, _, _ := n.api.counts()
	third := n.startHandler(p)
	m = n.machine(third, "takeover")
	if after, _, _ := n.api.counts(); after != before {
		t.Errorf("taking over wrote %v", n.api.patches[before:])
	}
	if err := m.Unpause(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.api.await(t, "no condition Paused", func(instance *v1.VirtualMachineInstance) bool {
		return condition(instance, v1.VirtualMachineInstancePaused) == nil
	})
	if got := p.qemus(); !slices.Equal(got, qemus) {
		t.Errorf("QEMU was %v and is %v", qemus, got)
	}
}

// machine waits until the handler has found the guest.
func (n *node) machine(h *handler, uid types.UID) *runningguest.Guest {
	n.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		m, err := h.supervisor.Lookup("shop", "web", uid)
		if err == nil {
			return m
		}
		if time.Now().After(deadline) {
			n.t.Fatalf("the guest was not taken over: %v", err)
		}
		time.Sleep(10 * time.Millisecond) // no event tells of it
	}
}

func TestHandlerKilledBetweenStartAndStatus(t *testing.T) {
	t.Parallel()
	n := newNode(t, scheduled("midway"))
	p := n.newPod(n.api.vmi)
	n.api.setAway(true)
	first := n.startHandler(p)
	p.start()
	n.machine(first, "midway") // QEMU runs, and nobody was told
	qemus := p.qemus()
	first.stop()

	n.api.setAway(false)
	second := n.startHandler(p)
	n.api.await(t, "phase Running", phase(v1.Running))
	if got := p.qemus(); len(got) != 1 || !slices.Equal(got, qemus) {
		t.Errorf("QEMU was %v and is %v", qemus, got)
	}
	second.stop()
	_, _, events := n.api.counts()
	if diff := cmp.Diff([]string{"Normal Started: VirtualMachineInstance started."}, events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestQEMUDies(t *testing.T) {
	t.Parallel()
	n := newNode(t, scheduled("crash"))
	p := n.newPod(n.api.vmi)
	n.startHandler(p)
	p.start()
	n.api.await(t, "phase Running", phase(v1.Running))
	for _, pid := range p.qemus() {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	failed := n.api.await(t, "phase Failed", phase(v1.Failed))
	if failed.Status.Reason != "Crashed" {
		t.Errorf("reason %q", failed.Status.Reason)
	}
	if c := condition(failed, v1.VirtualMachineInstanceReady); c == nil || !strings.Contains(c.Message, "QEMU was ended by signal 9") {
		t.Errorf("Ready: %v", c)
	}
	if patches, _, _ := n.api.counts(); patches != 2 {
		t.Errorf("%d patches: %v", patches, n.api.patches)
	}
}

func TestDeletedBeforeItsLauncherIsThere(t *testing.T) {
	t.Parallel()
	n := newNode(t, scheduled("early"))
	p := n.newPod(n.api.vmi)
	n.startHandler(p)
	n.api.update(remove)
	p.start()
	// When the controller deletes the pod, the kubelet asks virt-launcher to end. By then the handler must not have
	// started QEMU in it.
	if err := p.cmd.Process.Signal(syscall.Signal(0)); err != nil {
		t.Fatal(err)
	}
	n.awaitSocket(p)
	if got := p.qemus(); len(got) != 0 {
		t.Errorf("QEMU was started for a VMI that is to go: %v", got)
	}
}

func TestPodThatTheControllerDidNotChoose(t *testing.T) {
	t.Parallel()
	instance := scheduled("stranger")
	instance.Status.ActivePods = map[types.UID]string{"another-pod": "node1"}
	n := newNode(t, instance)
	p := n.newPod(n.api.vmi)
	n.startHandler(p)
	p.start()
	n.awaitSocket(p)
	if got := p.qemus(); len(got) != 0 {
		t.Errorf("QEMU was started in a pod that is not among the active ones: %v", got)
	}
}

func TestFailingStepIsSaidAndRetried(t *testing.T) {
	t.Parallel()
	instance := scheduled("broken")
	instance.Spec.Volumes[1].CloudInitNoCloud = &v1.CloudInitNoCloudSource{
		UserDataSecretRef: &corev1.LocalObjectReference{Name: "missing"},
	}
	n := newNode(t, instance)
	p := n.newPod(n.api.vmi)
	n.startHandler(p)
	p.start()
	failing := n.api.await(t, "condition Synchronized", func(instance *v1.VirtualMachineInstance) bool {
		return condition(instance, v1.VirtualMachineInstanceSynchronized) != nil
	})
	c := condition(failing, v1.VirtualMachineInstanceSynchronized)
	if c.Status != corev1.ConditionFalse || c.Reason != "Synchronizing with the Domain failed." ||
		!strings.Contains(c.Message, "Secret missing has no key userdata or userData") {
		t.Errorf("Synchronized: %v", c)
	}
	if failing.Status.Phase != v1.Scheduled {
		t.Errorf("phase %s", failing.Status.Phase)
	}
	// The spec of a real VMI does not change. Here it does, so that the next attempt succeeds.
	n.api.update(func(instance *v1.VirtualMachineInstance) {
		instance.Spec.Volumes[1].CloudInitNoCloud = &v1.CloudInitNoCloudSource{UserData: "x"}
	})
	running := n.api.await(t, "phase Running", phase(v1.Running))
	if c := condition(running, v1.VirtualMachineInstanceSynchronized); c != nil {
		t.Errorf("Synchronized is still there: %v", c)
	}
}
