package cpus

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/handler/concern"
	"drydock.dev/drydock/internal/handler/concern/concerntest"
	"drydock.dev/drydock/internal/qemu/qmp"
	"drydock.dev/drydock/internal/qemu/qmptest"
	"drydock.dev/drydock/internal/qemu/runstate"
	"drydock.dev/drydock/internal/rules/vmi/vmihandler"
)

// places are slots of one thread each, with a CPU in the first ones.
func places(present int) []slot {
	var slots []slot
	for i := range int64(4) {
		s := slot{Driver: "max-x86_64-cpu", Props: map[string]int64{"socket-id": i / 2, "core-id": i % 2, "thread-id": 0}}
		if int(i) < present {
			s.Path = "/machine/cpu" + s.id()
		}
		slots = append(slots, s)
	}
	slices.Reverse(slots) // as QEMU lists them
	return slots
}

func TestWhichCPUsComeAndGo(t *testing.T) {
	for name, test := range map[string]struct {
		present, want int
		plug, unplug  string
	}{
		"as many":                {2, 2, "", ""},
		"one more":               {1, 2, "cpu-0-0-1-0", ""},
		"all":                    {1, 4, "cpu-0-0-1-0 cpu-1-0-0-0 cpu-1-0-1-0", ""},
		"more than there can be": {3, 9, "cpu-1-0-1-0", ""},
		"the last one":           {3, 2, "", "cpu-1-0-0-0"},
		"all but the first":      {4, 1, "", "cpu-1-0-1-0 cpu-1-0-0-0 cpu-0-0-1-0"},
		"the first one stays":    {2, 0, "", "cpu-0-0-1-0"},
	} {
		t.Run(name, func(t *testing.T) {
			ids := func(slots []slot) string {
				var out []string
				for _, s := range slots {
					out = append(out, s.id())
				}
				return strings.Join(out, " ")
			}
			v := Seen{}.with(places(test.present))
			plug, unplug := v.changes(test.want)
			if v.count() != test.present || ids(plug) != test.plug || ids(unplug) != test.unplug {
				t.Errorf("of %d, plugged are %q and unplugged %q", v.count(), ids(plug), ids(unplug))
			}
		})
	}
}

func TestWhenAGuestIsAskedForItsCPUs(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	three := Seen{}.with(places(3))
	asked := three
	asked.since, asked.asked = now.Add(-time.Hour), now.Add(-10*time.Second)
	for name, test := range map[string]struct {
		v     Seen
		want  int
		due   bool
		after time.Duration
	}{
		"nothing is known":             {Seen{}, 2, false, 0},
		"it has them":                  {three, 3, false, 0},
		"more":                         {three, 4, true, 0},
		"more than there can be":       {Seen{}.with(places(4)), 5, false, 0},
		"fewer, for the first time":    {three, 2, true, 0},
		"it was asked a moment ago":    {asked, 2, false, 5 * time.Second},
		"more, after it was asked":     {asked, 4, true, 0},
		"the first one is never asked": {Seen{}.with(places(1)), 0, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			if due, after := test.v.due(test.want, now); due != test.due || after != test.after {
				t.Errorf("due: %v, after %v", due, after)
			}
		})
	}
	if due, _ := asked.due(2, asked.asked.Add(15*time.Second)); !due {
		t.Error("it is not asked again")
	}
	if due, _ := asked.due(2, asked.asked.Add(15*time.Second-1)); due {
		t.Error("it is asked again too early")
	}
}

func ost(kind string, source, status int64) qmp.Event {
	data, err := json.Marshal(map[string]any{"info": map[string]any{"slot": "2", "slot-type": kind, "source": source, "status": status}})
	if err != nil {
		panic(err)
	}
	return qmp.Event{Name: "ACPI_DEVICE_OST", Data: data}
}

func TestWhatAGuestAnswersIsHeard(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	three := Seen{}.with(places(3))
	three.inquiry.AcceptAnswer(three.inquiry.NextQuestion())
	asked := three
	asked.since, asked.asked = now, now
	refused := asked
	refused.refused = 1
	const refuses = "the guest does not give its CPUs back: its system refuses to (status 0x1); it is asked again and again"
	for name, test := range map[string]struct {
		v    Seen
		e    qmp.Event
		news bool
		kept string
	}{
		"a refusal":                     {asked, ost("CPU", 3, 1), true, refuses},
		"a refusal of the system's own": {asked, ost("CPU", 0x103, 1), true, refuses},
		"the same once more":            {refused, ost("CPU", 3, 1), false, refuses},
		"it is about to":                {asked, ost("CPU", 3, 0x84), false, ""},
		"it does":                       {asked, ost("CPU", 3, 0), false, ""},
		"it does after all":             {refused, ost("CPU", 3, 0), true, ""},
		"an answer to something else":   {asked, ost("CPU", 0x200, 1), false, ""},
		"of memory":                     {asked, ost("DIMM", 3, 1), false, ""},
		"nobody has asked":              {three, ost("CPU", 3, 1), false, ""},
		"it can't be read":              {asked, qmp.Event{Name: "ACPI_DEVICE_OST", Data: []byte("[")}, false, ""},
		"another event":                 {asked, qmp.Event{Name: "RESET"}, false, ""},
		"something is gone":             {asked, qmp.Event{Name: "DEVICE_DELETED"}, true, ""},
		"something is gone of a guest without room": {Seen{}, qmp.Event{Name: "DEVICE_DELETED"}, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			next, news := test.v.handleEvent(test.e)
			if news != test.news || next.problem(now) != test.kept || next.inquiry.Outdated() != (test.e.Name == "DEVICE_DELETED") {
				t.Errorf("news: %v, outdated: %v, it says %q", news, next.inquiry.Outdated(), next.problem(now))
			}
		})
	}
	const silent = "the guest does not give its CPUs back: its system has not answered for 15s; it is asked again and again"
	if kept := asked.problem(now.Add(15*time.Second - 1)); kept != "" {
		t.Errorf("before its time is over it says %q", kept)
	}
	if kept := asked.problem(now.Add(15 * time.Second)); kept != silent {
		t.Errorf("when its time is over it says %q", kept)
	}
	if kept := asked.with(places(2)).problem(now.Add(time.Hour)); kept != "" {
		t.Errorf("after it has given one back it says %q", kept)
	}
	if kept := asked.with(places(3)).problem(now.Add(time.Hour)); kept != silent {
		t.Errorf("before it has given one back it says %q", kept)
	}
}

// driven has the CPUs of a running guest with KVM and room for four sockets.
type driven struct {
	*concerntest.Driven[Seen, Plan]
	t *testing.T
}

func drive(t *testing.T, qemu *qmptest.Server) driven {
	t.Helper()
	return driven{concerntest.Drive(t, qemu, New(Env{
		Go: concerntest.Background(t), Used: func(context.Context) (int, error) { return 0, errors.New("there is no agent") },
	}), round(1)), t}
}

// round returns the facts of such a guest that should have the given sockets, and whose pod has the resources for them.
func round(sockets uint32) concern.Round {
	enough := corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}}
	vmi := &v1.VirtualMachineInstance{}
	vmi.Spec.Domain.CPU = &v1.CPU{Sockets: sockets, Cores: 1, Threads: 1, MaxSockets: 4}
	vmi.Status.Phase = v1.Running
	vmi.Status.Conditions = []v1.VirtualMachineInstanceCondition{{Type: v1.VirtualMachineInstanceVCPUChange, Status: corev1.ConditionTrue}}
	return concern.Round{
		VMI: vmi, Pod: &vmihandler.Pod{Resources: &enough}, Resources: &enough, RunState: runstate.Running, KVM: true, Now: noon,
	}
}

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// wants changes the number of CPUs that the VMI wants.
func (d driven) wants(cpus uint32) {
	d.Change(func(r *concern.Round) { r.VMI = round(cpus).VMI })
}

// change acts on the wanted number of CPUs, and checks that the guest has three right afterwards.
func (d driven) change(want uint32) {
	d.t.Helper()
	d.wants(want)
	if err := d.Act(Plan{Wanted: int(want)}); err != nil || d.Look().Has != 3 {
		d.t.Fatalf("the guest has %d CPUs, want 3: %v", d.Look().Has, err)
	}
}

// isDue checks whether a change to the wanted number of CPUs is due, or after which delay.
func (d driven) isDue(want uint32, is bool, after time.Duration) {
	d.t.Helper()
	d.wants(want)
	if p := d.Look(); p.Due != is || p.After != after {
		d.t.Errorf("of %d CPUs, something is due: %v, after %v; want %v, %v", want, p.Due, p.After, is, after)
	}
}

// tells checks the text about CPUs that the guest keeps; "" means none.
func (d driven) tells(part string) {
	d.t.Helper()
	if kept := d.Look().Problem; !strings.Contains(kept, part) || (kept == "") != (part == "") {
		d.t.Errorf("it says %q, want %q", kept, part)
	}
}

func TestCPUsArePlugged(t *testing.T) {
	qemu := qmptest.New(t)
	d := drive(t, qemu)
	if p := d.Concern.Decide(round(3), Seen{}); p.Due || p.Has != 0 {
		t.Errorf("nobody has asked which there are: %+v", p)
	}
	d.Look()
	if p := d.Look(); qemu.Executed("query-hotpluggable-cpus") != 1 || p.Has != 1 {
		t.Errorf("%d CPUs, asked for %d times", p.Has, qemu.Executed("query-hotpluggable-cpus"))
	}
	d.isDue(3, true, 0)
	d.change(3)
	d.isDue(3, false, 0)
	if err := d.Act(Plan{Wanted: 2}); err == nil || !strings.Contains(err.Error(), "unplugging the CPU cpu-2-0-0-0") {
		t.Fatalf("firmware has released a CPU: %v", err)
	}
}

func TestCPUsAreAskedFor(t *testing.T) {
	qemu := qmptest.New(t)
	qemu.RunSystem()
	d := drive(t, qemu)
	d.change(3)
	d.change(2)
	d.isDue(2, false, unplugPatience)
	d.tells("")
	qemu.RefuseCPU(1)
	d.Await("the refusal", func(p Plan) bool { return strings.Contains(p.Problem, "status 0x1") })
	d.Pass(unplugPatience)
	d.isDue(2, true, 0)
	d.change(2)
	d.tells("status 0x1") // until it answers something else
	d.isDue(3, false, 0)
	d.tells("")
	d.change(2)
	d.tells("") // an answer to an earlier request does not apply to this one
	qemu.ReleaseCPUs()
	d.Await("the CPU to be gone", func(p Plan) bool { return p.Has == 2 })
	d.tells("")
	d.change(3) // by the name of the CPU that went
}

func TestCPUsAreAskedForAgainWhenTheyMayDiffer(t *testing.T) {
	qemu := qmptest.New(t)
	concerntest.CheckQuestion(t, qemu, drive(t, qemu).Driven, concerntest.Question[Plan]{
		Command: "query-hotpluggable-cpus", Event: "DEVICE_DELETED", Known: func(p Plan) bool { return p.Has == 1 },
	})
}

func TestWhenCPUsAreChanged(t *testing.T) {
	three := Seen{}.with(places(3))
	asked := three
	asked.since, asked.asked, asked.refused = noon.Add(-time.Minute), noon.Add(-10*time.Second), 1
	const refuses = "the guest does not give its CPUs back: its system refuses to (status 0x1); it is asked again and again"
	for name, test := range map[string]struct {
		sockets uint32
		seen    Seen
		change  func(*concern.Round)
		want    Plan
	}{
		"it has them":             {3, three, func(*concern.Round) {}, Plan{Has: 3}},
		"more":                    {4, three, func(*concern.Round) {}, Plan{Next: concern.Next{Due: true}, Has: 3, Wanted: 4}},
		"fewer":                   {2, three, func(*concern.Round) {}, Plan{Next: concern.Next{Due: true}, Has: 3, Wanted: 2}},
		"nothing is known":        {4, Seen{}, func(*concern.Round) {}, Plan{}},
		"it was asked":            {2, asked, func(*concern.Round) {}, Plan{Next: concern.Next{After: 5 * time.Second, Problem: refuses}, Has: 3, Wanted: 2}},
		"it may keep them":        {3, asked, func(*concern.Round) {}, Plan{Has: 3}},
		"it is being migrated":    {4, three, func(r *concern.Round) { r.Migrating = true }, Plan{Has: 3}},
		"asked, it migrates":      {2, asked, func(r *concern.Round) { r.Migrating = true }, Plan{Has: 3}},
		"its pod is not known":    {4, three, func(r *concern.Round) { r.Resources = nil }, Plan{Has: 3}},
		"its pod has too little":  {4, three, func(r *concern.Round) { r.Pod = nil }, Plan{Has: 3}},
		"it is paused":            {4, three, func(r *concern.Round) { r.RunState = runstate.Paused }, Plan{Has: 3}},
		"an emulated one":         {2, three, func(r *concern.Round) { r.KVM = false }, Plan{Has: 3}},
		"it is not announced":     {4, three, func(r *concern.Round) { r.VMI.Status.Conditions = nil }, Plan{Has: 3}},
		"it is not reported yet":  {4, three, func(r *concern.Round) { r.VMI.Status.Phase = v1.Scheduled }, Plan{Has: 3, Wanted: 4}},
		"asked before it is told": {2, three, func(r *concern.Round) { r.VMI.Status.Phase = v1.Scheduled }, Plan{Has: 3, Wanted: 2}},
	} {
		r := round(test.sockets)
		test.change(&r)
		if diff := cmp.Diff(test.want, (&Concern{}).Decide(r, test.seen)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestCPUsThatAreNotUsedAreTold: the guest has three CPUs, and its agent reports how many of them it uses.
func TestCPUsThatAreNotUsedAreTold(t *testing.T) {
	const unused = "CPUsNotUsed: The guest uses 2 of the 3 CPUs that it has: its system has not brought the others into use."
	for name, test := range map[string]struct {
		used func(asked int) (int, error)
		want string
	}{
		"all of them":            {func(int) (int, error) { return 3, nil }, ""},
		"all of them, at last":   {func(asked int) (int, error) { return min(asked, 3), nil }, ""},
		"not all of them":        {func(int) (int, error) { return 2, nil }, unused},
		"there is no agent":      {func(int) (int, error) { return 0, errors.New("VMI does not have guest agent connected") }, ""},
		"an agent that has gone": {func(asked int) (int, error) { return 2, map[bool]error{true: errors.New("gone")}[asked > 1] }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				asked, got := 0, ""
				c := New(Env{
					Used: func(context.Context) (int, error) {
						asked++
						return test.used(asked)
					},
					Warn: func(_ *v1.VirtualMachineInstance, reason, message string) { got += reason + ": " + message },
				})
				if c.warnIfUnused(t.Context(), &v1.VirtualMachineInstance{}, 3); got != test.want {
					t.Errorf("events: %q", got)
				}
			})
		})
	}
}
