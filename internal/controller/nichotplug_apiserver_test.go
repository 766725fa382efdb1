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

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/condition"
	"drydock.dev/drydock/internal/rules/launcherpod"
	"drydock.dev/drydock/internal/rules/nichotplug"
)

// movedClock is a clock that only a test moves.
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

// onMultus gives the template an interface on a network of that name, and others after it.
func onMultus(names ...string) func(*v1.VirtualMachineInstanceSpec) {
	return func(spec *v1.VirtualMachineInstanceSpec) {
		for _, name := range names {
			spec.Networks = append(spec.Networks, v1.Network{Name: name, NetworkSource: v1.NetworkSource{Multus: &v1.MultusNetwork{NetworkName: name}}})
			spec.Domain.Devices.Interfaces = append(spec.Domain.Devices.Interfaces,
				v1.Interface{Name: name, InterfaceBindingMethod: v1.InterfaceBindingMethod{Bridge: &v1.InterfaceBridge{}}})
		}
	}
}

// attachTo plays Multus, or an attacher: the pod is on these networks.
func (w *world) attachTo(pod *corev1.Pod, names ...string) {
	w.t.Helper()
	entries := []string{`{"name":"cbr0","interface":"eth0"}`}
	for _, name := range names {
		entries = append(entries, fmt.Sprintf(`{"name":"%s/%s","interface":%q}`, w.namespace, name, layout.SecondaryInterface(name)))
	}
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, nichotplug.StatusAnnotation, "["+strings.Join(entries, ",")+"]")
	w.do("saying what the pod is attached to", w.client.Patch(w.ctx, &corev1.Pod{ObjectMeta: pod.ObjectMeta}, client.RawPatch("application/merge-patch+json", []byte(patch))))
}

// awaitRequired waits until the condition MigrationRequired has a status; "" until it is gone.
func (w *world) awaitRequired(status corev1.ConditionStatus) *v1.VirtualMachineInstanceCondition {
	w.t.Helper()
	var c *v1.VirtualMachineInstanceCondition
	w.eventually("MigrationRequired to be "+string(status), func() (bool, string) {
		c = condition.Find(w.vmi("vm").Status.Conditions, v1.VirtualMachineInstanceMigrationRequired)
		return c == nil && status == "" || c != nil && c.Status == status, fmt.Sprintf("it is %+v", c)
	})
	return c
}

// awaitAsked waits until the pod asks for these networks, and no others of ours.
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

// look has the loops look at the VMI again: its time has passed, which wakes nobody.
func (w *world) look() {
	w.t.Helper()
	vmi := w.vmi("vm")
	before := vmi.DeepCopy()
	metav1.SetMetaDataAnnotation(&vmi.ObjectMeta, "look", fmt.Sprint(time.Now().UnixNano()))
	w.do("waking the loop", w.client.Patch(w.ctx, vmi, client.MergeFrom(before)))
}

// plugging is a world with a VM that runs, whose template changes reach it.
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

// TestAnInterfaceIsBroughtByAMigration follows MigrationRequired while nobody attaches anything: ten seconds are not
// more than ten. It is taken back in time, and asked for again.
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
	w.quiet()
	w.awaitRequired(corev1.ConditionFalse)
	clock.pass(time.Second)
	w.look()
	if c := w.awaitRequired(corev1.ConditionTrue); c.Reason != v1.VirtualMachineInstanceReasonAutoMigrationDueToLiveUpdate {
		t.Errorf("the condition says %+v", c)
	}
	// An attacher that comes after eleven seconds.
	w.attachTo(pod, "blue", "green")
	w.awaitRequired("")
	if pods := w.pods(); len(pods) != 1 {
		t.Errorf("%d launcher pods", len(pods))
	}
}

// TestAnInterfaceIsAttachedInPlace: no migration is asked for, of one that comes and one that goes at once.
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
	w.quiet()
	w.awaitRequired("")
}

// TestAStagedInterfaceWaits for the restart, also where the pod has been attached by somebody else.
func TestAStagedInterfaceWaits(t *testing.T) {
	w, clock, pod := plugging(t)
	w.setRollout(v1.VMRolloutStrategyStage)
	w.changeTemplate(onMultus("blue"))
	w.awaitRestartRequired("spec.template.spec.domain.devices.interfaces[blue]")
	clock.pass(time.Minute)
	w.look()
	w.quiet()
	w.awaitAsked(pod)
	w.awaitRequired("")
	w.changeTemplate(func(spec *v1.VirtualMachineInstanceSpec) {
		spec.Networks, spec.Domain.Devices.Interfaces = nil, nil
	})
	w.awaitRestartRequired("")
}
