package maintenance

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/exploration"
	"drydock.dev/drydock/internal/rules/hotplug"
	"drydock.dev/drydock/internal/rules/maintenance/lock"
	"drydock.dev/drydock/internal/rules/vmi/vmicontroller"
)

// A machine's claim is plugged into the running guest of another VMI.

var errPlugged = errors.New("M5: a maintenance pod runs and another guest has its claim plugged")

// plug is the volume of the other VMI. asked means that the API server was asked who has the claim for maintenance, and
// clear that nobody had at that time.
type plug struct {
	wanted, recorded, asked, clear, handed bool
}

const dataClaim = "data"

// taken reports whether a maintenance pod may write to the claim, by the API server's present state.
func (s *state) taken() bool {
	for i, p := range s.pods {
		pod := p.object(i)
		if pod == nil {
			continue
		}
		pod.Labels[layout.ClaimLabel(dataClaim)] = ""
		if _, is := vmicontroller.MaintainerOn([]string{dataClaim}, pod, s.vm.machine()); is {
			return true
		}
	}
	return false
}

// planned returns the hotplug loop's plan for the volume.
func (p plug) planned() hotplug.Plan {
	volume := hotplug.Volume{Name: dataClaim, Claim: dataClaim}
	o := hotplug.Observed{
		Prefix: "hp", MaxAttachmentPods: 1, Wanted: []hotplug.Wanted{{Volume: volume, Attach: true}}, MaintainersAsked: p.asked,
		Entries: []hotplug.Entry{{Volume: volume, Phase: v1.VolumeBound}}, Budget: hotplug.Budget{State: hotplug.BudgetRight},
	}
	if p.recorded {
		o.Record = hotplug.Record{Generation: 1, Pods: []hotplug.AttachmentPod{{Name: "hp-1", Volumes: []hotplug.Volume{volume}}}}
		o.Pods = []hotplug.Pod{{Name: "hp-1", UID: "hp-uid", Running: true, Volumes: []hotplug.Volume{volume}}}
	}
	if !p.clear {
		o.Maintainers = map[string]hotplug.Maintainer{dataClaim: {Pod: "pod", Of: "vm"}}
	}
	return hotplug.Decide(o)
}

func (sc *scenario) plugs(s *state, add adder) {
	p := s.plug
	if s.budget[plugs] > 0 && !p.wanted {
		add("somebody plugs the claim into another guest", true, func(to *state) { to.budget[plugs]--; to.plug.wanted = true })
	}
	if !p.wanted {
		return
	}
	if p.handed {
		add("the disk is unplugged", true, func(to *state) { to.plug = plug{} })
		return
	}
	add("the hotplug loop asks who has the claim", false, func(to *state) { to.plug.asked, to.plug.clear = true, !s.taken() })
	plan := p.planned()
	switch {
	case plan.Needs != "":
	case len(plan.Record.Pods) > 0 && !p.recorded:
		// The earlier answer is not about this version of the VMI.
		add("it records an attachment pod", false, func(to *state) {
			to.plug.recorded, to.plug.asked = true, p.asked && sc.rules.asksOnce
			to.plug.clear = p.clear && sc.rules.asksOnce
		})
	case plan.Entries[0].Phase == v1.HotplugVolumeAttachedToNode:
		add("it hands the volume to virt-handler", false, func(to *state) { to.plug = plug{wanted: true, recorded: true, handed: true} })
	}
}

// other returns the other VMI as a search for plugged claims sees it.
func (p plug) other() v1.VirtualMachineInstance {
	vmi := v1.VirtualMachineInstance{Status: v1.VirtualMachineInstanceStatus{Phase: v1.Running}}
	vmi.Name = "other"
	if p.recorded {
		record := hotplug.Record{Generation: 1, Pods: []hotplug.AttachmentPod{{Name: "hp-1", Volumes: []hotplug.Volume{{Name: dataClaim, Claim: dataClaim}}}}}
		vmi.Annotations = map[string]string{hotplug.RecordAnnotation: record.Text()}
	}
	return vmi
}

// seenPlugged returns the result of a search for plugged claims.
func (p plug) seenPlugged(m lock.Machine) Plugged {
	return PluggedInto(m, []string{dataClaim}, []v1.VirtualMachineInstance{p.other()})
}

func TestALockAndAPlugExcludeEachOther(t *testing.T) {
	exploration.EachScenario(t, []scenario{
		{name: "a plug and two pods", budget: [budgets]int8{creates: 2, plugs: 1}},
		{name: "two plugs, a pod and a start", budget: [budgets]int8{creates: 1, plugs: 2, starts: 1}},
		{name: "a plug, and a pod of a VMI", instance: true, budget: [budgets]int8{creates: 1, plugs: 2}},
	}, nil, func(sc scenario) string { return sc.name }, func(_ *testing.T, sc scenario) (*exploration.Graph[state, step], error) {
		sc.rules = drydocks
		return sc.explore()
	})
}

func TestWhatIsWrongOfPlugsIsFound(t *testing.T) {
	asksOnce := drydocks
	asksOnce.asksOnce = true
	blind := seen(func(o *Observed) {
		if o.Look != nil {
			o.Look.Plugged, o.Look.PluggedAsked = Plugged{}, true
		}
	})
	once := seen(func(o *Observed) {
		if _, locked := lock.Of(o.Machine); locked && o.Look != nil {
			o.Look.Plugged, o.Look.PluggedAsked = Plugged{}, true
		}
	})
	expectFound(t, map[string]mutant{
		"nobody looks for plugged disks":                {blind, scenario{budget: [budgets]int8{creates: 1, plugs: 1}}, errPlugged},
		"nobody looks for plugged disks after the lock": {once, scenario{budget: [budgets]int8{creates: 1, plugs: 1}}, errPlugged},
		"the plug asks before it is recorded, only":     {asksOnce, scenario{budget: [budgets]int8{creates: 1, plugs: 1}}, errPlugged},
	})
}

// Another guest has a claim of the VM plugged, whatever happened to the attachment pod: it must be an obstacle.
func TestAPluggedClaimIsInTheWay(t *testing.T) {
	other := plug{recorded: true}.other()
	own := *other.DeepCopy()
	own.Name = "vm"
	for name, c := range map[string]struct {
		claims []string
		vmis   []v1.VirtualMachineInstance
		want   string
	}{
		"it is plugged":  {[]string{"root", dataClaim}, []v1.VirtualMachineInstance{own, other}, "the claim data is plugged into the guest of VMI other"},
		"another claim":  {[]string{"root"}, []v1.VirtualMachineInstance{other}, ""},
		"of its own VMI": {[]string{dataClaim}, []v1.VirtualMachineInstance{own}, ""},
	} {
		look := Look{Plugged: PluggedInto(newVM(), c.claims, c.vmis), PluggedAsked: true, Users: []*corev1.Pod{}}
		if got := Obstacle(newVM(), newPod("a"), &look); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
