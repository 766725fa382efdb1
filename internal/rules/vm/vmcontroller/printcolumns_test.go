package vmcontroller

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/object/condition"
)

func TestOneLineOfWhatAGuestSays(t *testing.T) {
	for text, want := range map[string]string{
		"Debian GNU/Linux 12 (bookworm)": "Debian GNU/Linux 12 (bookworm)",
		" a\x1b[31m\nb\t\u202ec ":        "a[31mbc",
		"":                               "",
		"\n":                             "",
		strings.Repeat("ü", maxGuestOS):  strings.Repeat("ü", maxGuestOS),
		strings.Repeat("x", 100_000):     strings.Repeat("x", maxGuestOS-1) + "…",
	} {
		if got := oneLine(text, maxGuestOS); got != want {
			t.Errorf("%.20q becomes %q, not %q", text, got, want)
		}
	}
}

func TestAVMSaysWhereItsGuestIsWhileItRuns(t *testing.T) {
	running := func() *v1.VirtualMachineInstance {
		vmi := &v1.VirtualMachineInstance{}
		vmi.Status.Phase, vmi.Status.NodeName = v1.Running, "node7"
		vmi.Status.Interfaces = []v1.VirtualMachineInstanceNetworkInterface{{IP: "10.1.2.3"}, {IP: "10.9.9.9"}}
		vmi.Status.GuestOSInfo.PrettyName = "Debian"
		return vmi
	}
	changed := func(change func(*v1.VirtualMachineInstance)) *v1.VirtualMachineInstance {
		vmi := running()
		change(vmi)
		return vmi
	}
	for name, c := range map[string]struct {
		d    decision
		want string
	}{
		"all that is known of a running guest": {decision{vmi: running()}, "node7 10.1.2.3 Debian"},
		"a guest without an agent and without a network": {decision{vmi: changed(func(vmi *v1.VirtualMachineInstance) {
			vmi.Status.Interfaces, vmi.Status.GuestOSInfo = nil, v1.VirtualMachineInstanceGuestOSInfo{}
		})}, "node7"},
		"a guest that does not run yet": {decision{vmi: changed(func(vmi *v1.VirtualMachineInstance) { vmi.Status.Phase = v1.Scheduled })}, ""},
		"a guest that is being stopped": {decision{vmi: running(), Plan: Plan{Delete: true}}, ""},
		"no instance":                   {decision{}, ""},
	} {
		var said []string
		for _, cond := range c.d.guestConditions() {
			said = append(said, cond.Message)
		}
		if got := strings.Join(said, " "); got != c.want {
			t.Errorf("%s: %q, not %q", name, got, c.want)
		}
	}
}

func TestTheGuestsPlaceIsSaidTogetherWithReadyAndGoesTogetherWithIt(t *testing.T) {
	vmi := newTestVMI(running, vmiSays(v1.VirtualMachineInstanceReady, "True", "", ""))
	vmi.Status.NodeName = "node7"
	up := decide(Observed{VM: newVM(v1.RunStrategyAlways), VMI: vmi, Now: now}).VM
	if c := condition.Find(up.Status.Conditions, ConditionNode); c == nil || c.Message != "node7" || !up.Status.Ready {
		t.Errorf("ready is %v, and the conditions are %+v", up.Status.Ready, up.Status.Conditions)
	}
	again := decide(Observed{VM: up, VMI: vmi, Now: now.Add(time.Hour)}).VM
	if !equality.Semantic.DeepEqual(up.Status, again.Status) {
		t.Errorf("nothing happened, and %+v became %+v", up.Status, again.Status)
	}
	stopping := decide(Observed{VM: newHaltedAfter(up), VMI: vmi, Now: now}).VM
	if c := condition.Find(stopping.Status.Conditions, ConditionNode); c != nil || stopping.Status.Ready {
		t.Errorf("a VM that stops is ready %v and says %+v", stopping.Status.Ready, c)
	}
}
