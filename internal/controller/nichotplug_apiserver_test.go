//go:build apiserver

package controller

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/hotplug/nichotplug"
	"drydock.dev/drydock/internal/rules/object/condition"
	"drydock.dev/drydock/internal/rules/pod/launcherpod"
	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

type movedClock struct{ at atomic.Pointer[time.Time] }

func newMovedClock() *movedClock {
	c := &movedClock{}
	start := time.Now().Truncate(time.Second)
	c.at.Store(&start)
	return c
}

func (c *movedClock) apply(o *options) { o.now = func() time.Time { return *c.at.Load() } }

func (c *movedClock) pass(d time.Duration) {
	next := c.at.Load().Add(d)
	c.at.Store(&next)
}

func onMultus(names ...string) func(*v1.VirtualMachineInstanceSpec) {
	return func(spec *v1.VirtualMachineInstanceSpec) {
		for _, name := range names {
			spec.Networks = append(spec.Networks, v1.Network{Name: name, NetworkSource: v1.NetworkSource{Multus: &v1.MultusNetwork{NetworkName: name}}})
			spec.Domain.Devices.Interfaces = append(spec.Domain.Devices.Interfaces,
				v1.Interface{Name: name, InterfaceBindingMethod: v1.InterfaceBindingMethod{Bridge: &v1.InterfaceBridge{}}})
		}
	}
}

// attachTo plays Multus, or an attacher: it sets the pod's networks.
func (w *world) attachTo(pod *corev1.Pod, names ...string) {
	w.t.Helper()
	entries := []string{`{"name":"cbr0","interface":"eth0"}`}
	for _, name := range names {
		entries = append(entries, fmt.Sprintf(`{"name":"%s/%s","interface":%q}`, w.namespace, name, layout.SecondaryInterface(name)))
	}
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, nichotplug.StatusAnnotation, "["+strings.Join(entries, ",")+"]")
	w.do("saying what the pod is attached to", w.client.Patch(w.ctx, &corev1.Pod{ObjectMeta: pod.ObjectMeta}, client.RawPatch("application/merge-patch+json", []byte(patch))))
}

// "" waits until there is no condition.
func (w *world) awaitRequired(status corev1.ConditionStatus) *v1.VirtualMachineInstanceCondition {
	w.t.Helper()
	var c *v1.VirtualMachineInstanceCondition
	w.eventually("MigrationRequired to be "+string(status), func() (bool, string) {
		c = condition.Find(w.vmi("vm").Status.Conditions, v1.VirtualMachineInstanceMigrationRequired)
		return c == nil && status == "" || c != nil && c.Status == status, fmt.Sprintf("it is %+v", c)
	})
	return c
}

func (w *world) awaitAsked(pod *corev1.Pod, names ...string) {
	w.t.Helper()
	w.eventually(fmt.Sprintf("the pod to ask for %v", names), func() (bool, string) {
		is := &corev1.Pod{}
		w.do("reading the pod", w.client.Get(w.ctx, client.ObjectKeyFromObject(pod), is))
		text := is.Annotations[launcherpod.NetworksAnnotation]
		for _, name := range names {
			if !strings.Contains(text, layout.SecondaryInterface(name)) {
				return false, "it asks for " + text
			}
		}
		return strings.Count(text, `"interface"`) == len(names), "it asks for " + text
	})
}

// The passing of time triggers no reconciliation.
func (w *world) look() {
	w.t.Helper()
	vmi := w.vmi("vm")
	before := vmi.DeepCopy()
	metav1.SetMetaDataAnnotation(&vmi.ObjectMeta, "look", fmt.Sprint(time.Now().UnixNano()))
	w.do("waking the loop", w.client.Patch(w.ctx, vmi, client.MergeFrom(before)))
}

func plugging(t *testing.T) (*world, *movedClock, *corev1.Pod) {
	t.Helper()
	clock := newMovedClock()
	w := newWorld(t, clock.apply)
	w.setRollout(v1.VMRolloutStrategyLiveUpdate)
	w.createVM("vm", v1.RunStrategyAlways)
	pod := w.run("vm")
	w.awaitPrintable("vm", v1.VirtualMachineStatusRunning)
	return w, clock, pod
}

// TestAnInterfaceIsBroughtByAMigration: MigrationRequired must become True after more than ten seconds in which
// nobody attaches. It is reverted in time, and requested again.
func TestAnInterfaceIsBroughtByAMigration(t *testing.T) {
	w, clock, pod := plugging(t)
	first := *clock.at.Load()
	w.changeTemplate(onMultus("blue"))
	w.awaitAsked(pod, "blue")
	if c := w.awaitRequired(corev1.ConditionFalse); !c.LastTransitionTime.Time.Equal(first) || c.Message != "interface blue is to be plugged" {
		t.Errorf("the condition says %+v at %s", c, first)
	}
	w.awaitRestartRequired("")
	w.changeTemplate(func(spec *v1.VirtualMachineInstanceSpec) {
		last := len(spec.Networks) - 1
		spec.Networks, spec.Domain.Devices.Interfaces = spec.Networks[:last], spec.Domain.Devices.Interfaces[:last]
	})
	w.awaitRequired("")
	w.awaitAsked(pod)

	clock.pass(5 * time.Second)
	w.changeTemplate(onMultus("blue", "green"))
	w.awaitRequired(corev1.ConditionFalse)
	w.awaitAsked(pod, "blue", "green")
	clock.pass(10 * time.Second)
	w.look()
	w.awaitSettled()
	w.awaitRequired(corev1.ConditionFalse)
	clock.pass(time.Second)
	w.look()
	if c := w.awaitRequired(corev1.ConditionTrue); c.Reason != v1.VirtualMachineInstanceReasonAutoMigrationDueToLiveUpdate {
		t.Errorf("the condition says %+v", c)
	}
	// This attacher comes after eleven seconds.
	w.attachTo(pod, "blue", "green")
	w.awaitRequired("")
	if pods := w.pods(); len(pods) != 1 {
		t.Errorf("%d launcher pods", len(pods))
	}
}

// TestADeviceOfTheNodeIsBroughtAtOnce: nobody attaches a device in place, so other interfaces in the same change
// need not wait either.
func TestADeviceOfTheNodeIsBroughtAtOnce(t *testing.T) {
	w, _, pod := plugging(t)
	w.changeTemplate(func(spec *v1.VirtualMachineInstanceSpec) {
		onMultus("blue", "fast")(spec)
		last := len(spec.Domain.Devices.Interfaces) - 1
		spec.Domain.Devices.Interfaces[last].InterfaceBindingMethod = v1.InterfaceBindingMethod{SRIOV: &v1.InterfaceSRIOV{}}
	})
	if c := w.awaitRequired(corev1.ConditionTrue); !strings.HasPrefix(c.Message, "interface blue is to be plugged; interface fast is to be plugged; the cluster makes no migration for that") {
		t.Errorf("the condition says %+v", c)
	}
	w.awaitAsked(pod, "blue", "fast")
	w.awaitRestartRequired("")
	w.attachTo(pod, "blue", "fast") // without a device
	w.eventually("what is left to do", func() (bool, string) {
		c := w.awaitRequired(corev1.ConditionTrue)
		return strings.HasPrefix(c.Message, "interface fast is to be plugged; the cluster makes no"), fmt.Sprintf("the condition says %+v", c)
	})
	if pods := w.pods(); len(pods) != 1 {
		t.Errorf("%d launcher pods", len(pods))
	}
}

// TestAnInterfaceIsAttachedInPlace checks that no migration is requested when one interface is plugged and one
// unplugged at once.
func TestAnInterfaceIsAttachedInPlace(t *testing.T) {
	w, clock, pod := plugging(t)
	w.changeTemplate(onMultus("blue"))
	w.awaitRequired(corev1.ConditionFalse)
	clock.pass(9 * time.Second)
	w.attachTo(pod, "blue")
	w.awaitRequired("")
	w.changeTemplate(func(spec *v1.VirtualMachineInstanceSpec) {
		spec.Domain.Devices.Interfaces[0].State = v1.InterfaceStateAbsent
		onMultus("green")(spec)
	})
	w.awaitAsked(pod, "green")
	if c := w.awaitRequired(corev1.ConditionFalse); !strings.Contains(c.Message, "green is to be plugged") || !strings.Contains(c.Message, "blue is to be unplugged") {
		t.Errorf("the condition says %+v", c)
	}
	w.attachTo(pod, "blue", "green")
	w.eventually("what is left to do", func() (bool, string) {
		c := condition.Find(w.vmi("vm").Status.Conditions, v1.VirtualMachineInstanceMigrationRequired)
		return c != nil && !strings.Contains(c.Message, "green"), fmt.Sprintf("the condition says %+v", c)
	})
	w.attachTo(pod, "green")
	w.awaitRequired("")
	w.awaitRestartRequired("")
	clock.pass(time.Hour)
	w.look()
	w.awaitSettled()
	w.awaitRequired("")
}

// TestAStagedInterfaceWaits for the restart, even if another controller has attached it to the pod.
func TestAStagedInterfaceWaits(t *testing.T) {
	w, clock, pod := plugging(t)
	w.setRollout(v1.VMRolloutStrategyStage)
	w.changeTemplate(onMultus("blue"))
	w.awaitRestartRequired("spec.template.spec.domain.devices.interfaces[blue]")
	clock.pass(time.Minute)
	w.look()
	w.awaitSettled()
	w.awaitAsked(pod)
	w.awaitRequired("")
	w.changeTemplate(func(spec *v1.VirtualMachineInstanceSpec) {
		spec.Networks, spec.Domain.Devices.Interfaces = nil, nil
	})
	w.awaitRestartRequired("")
}

func onNetwork(name string) func(*v1.VirtualMachineInstanceSpec) {
	return func(spec *v1.VirtualMachineInstanceSpec) { spec.Networks[0].Multus.NetworkName = name }
}

func (w *world) attachBlue(pod *corev1.Pod, network string) {
	w.t.Helper()
	text := fmt.Sprintf(`[{"name":"%s/%s","interface":%q}]`, w.namespace, network, layout.SecondaryInterface("blue"))
	before := pod.DeepCopy()
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, nichotplug.StatusAnnotation, text)
	w.do("saying what the pod is attached to", w.client.Patch(w.ctx, pod, client.MergeFrom(before)))
}

func onBlue(t *testing.T) (*world, *corev1.Pod) {
	w, _, pod := plugging(t)
	w.changeTemplate(onMultus("blue"))
	w.awaitAsked(pod, "blue")
	w.attachBlue(pod, "blue")
	w.hasBlue()
	w.awaitRequired("")
	return w, pod
}

// hasBlue plays a virt-handler that reports the interface in QEMU.
func (w *world) hasBlue() {
	w.t.Helper()
	vmi := w.vmi("vm")
	before := vmi.DeepCopy()
	vmi.Status.Interfaces = []v1.VirtualMachineInstanceNetworkInterface{{Name: "blue", InfoSource: "domain, multus-status"}}
	w.do("reporting the guest's interface", w.client.Patch(w.ctx, vmi, client.MergeFrom(before)))
}

// TestAnInterfaceMovesToAnotherNetwork by a migration, which must be required at once. Meanwhile the pod's request must
// stay. Then the change is reverted, staged, and made for a guest that can't migrate.
func TestAnInterfaceMovesToAnotherNetwork(t *testing.T) {
	w, pod := onBlue(t)
	moves := "interface blue is to be on network " + w.namespace + "/green, and its launcher pod is on " + w.namespace + "/blue"
	w.changeTemplate(onNetwork("green"))
	if c := w.awaitRequired(corev1.ConditionTrue); !strings.HasPrefix(c.Message, moves+"; the cluster makes no migration for that") {
		t.Errorf("the condition says %+v", c)
	}
	w.awaitSettled()
	pod = w.launcher(pod.Name)
	if asks := pod.Annotations[launcherpod.NetworksAnnotation]; !strings.Contains(asks, `"blue"`) || strings.Contains(asks, `"green"`) {
		t.Errorf("the pod that the guest is in asks for %s", asks)
	}
	if on := w.vmi("vm").Spec.Networks[0].Multus.NetworkName; on != "green" {
		t.Errorf("the VMI is to be on %s", on)
	}
	w.awaitRestartRequired("")
	w.changeTemplate(onNetwork("blue"))
	w.awaitRequired("")

	w.setRollout(v1.VMRolloutStrategyStage)
	w.changeTemplate(onNetwork("green"))
	w.awaitRestartRequired("spec.template.spec.networks[blue].multus.networkName")
	w.awaitSettled()
	w.awaitRequired("")
	w.migratable(corev1.ConditionFalse)
	w.setRollout(v1.VMRolloutStrategyLiveUpdate)
	if c := w.awaitRequired(corev1.ConditionTrue); !strings.HasPrefix(c.Message, moves) || !strings.Contains(c.Message, "PVC old is not shared") {
		t.Errorf("the condition says %+v", c)
	}
	w.awaitRestartRequired("")
	if pods := w.pods(); len(pods) != 1 {
		t.Errorf("%d launcher pods", len(pods))
	}
}

// TestANetworkThatChangesDuringAMigration: another must follow, because the guest's new pod is on the old
// network.
func TestANetworkThatChangesDuringAMigration(t *testing.T) {
	w, source := onBlue(t)
	m := w.migrate("move", "vm")
	target := w.bringTo(m, v1.MigrationTargetReady, otherNode)
	w.changeTemplate(onNetwork("green"))
	w.sourceSays(m, vmistatus.SourceMigration{Begins: true})
	w.awaitMigration(m.Name, v1.MigrationRunning)
	w.awaitSettled()
	if on := w.vmi("vm").Spec.Networks[0].Multus.NetworkName; on != "blue" {
		t.Errorf("the VMI that is being migrated is to be on %s", on)
	}
	w.attachBlue(w.launcher(target.Name), "blue")
	w.targetSays(m, vmistatus.TargetMigration{Runs: true})
	w.awaitMigration(m.Name, v1.MigrationSucceeded)
	if c := w.awaitRequired(corev1.ConditionTrue); !strings.Contains(c.Message, w.namespace+"/green, and its launcher pod is on "+w.namespace+"/blue") {
		t.Errorf("the condition says %+v", c)
	}
	w.endContainer(source, launch.Exit{Reason: launch.ReasonMigrated})
	w.awaitPodDeletion(source)
	w.removePod(source)
	next := w.migrate("again", "vm")
	target = w.bringTo(next, v1.MigrationRunning, testNode)
	if asks := target.Annotations[launcherpod.NetworksAnnotation]; !strings.Contains(asks, `"green"`) {
		t.Errorf("the next pod asks for %s", asks)
	}
	w.attachBlue(w.launcher(target.Name), "green")
	w.targetSays(next, vmistatus.TargetMigration{Runs: true})
	w.awaitMigration(next.Name, v1.MigrationSucceeded)
	w.awaitRequired("")
}

// TestAnInterfaceOfAGuestThatStays checks that the interface stays requested. The condition must say why no migration
// brings it, none may be made, and an attacher may still attach it.
func TestAnInterfaceOfAGuestThatStays(t *testing.T) {
	w, clock, pod := plugging(t)
	kv := w.kubevirt()
	before := kv.DeepCopy()
	kv.Spec.WorkloadUpdateStrategy.WorkloadUpdateMethods = []v1.WorkloadUpdateMethod{v1.WorkloadUpdateMethodLiveMigrate}
	w.do("having guests migrate by themselves", w.client.Patch(w.ctx, kv, client.MergeFrom(before)))
	w.migratable(corev1.ConditionFalse)
	w.changeTemplate(onMultus("blue"))
	w.awaitRequired(corev1.ConditionFalse)
	clock.pass(11 * time.Second)
	w.look()
	if c := w.awaitRequired(corev1.ConditionTrue); c.Message != "interface blue is to be plugged; the guest cannot be migrated: PVC old is not shared" {
		t.Errorf("the condition says %+v", c)
	}
	clock.pass(time.Hour)
	w.look()
	w.awaitSettled()
	var made v1.VirtualMachineInstanceMigrationList
	w.do("listing the migrations", w.client.List(w.ctx, &made, client.InNamespace(w.namespace)))
	if pods := w.pods(); len(made.Items) != 0 || len(pods) != 1 || w.vmi("vm").Status.Phase != v1.Running {
		t.Errorf("there are %d migrations and %d launcher pods, and the VMI is %s", len(made.Items), len(pods), w.vmi("vm").Status.Phase)
	}
	w.awaitAsked(pod, "blue")
	w.attachTo(pod, "blue")
	w.awaitRequired("")
	w.awaitRestartRequired("")
}
