package memory

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/handler/concern"
	"drydock.dev/drydock/internal/handler/concern/concerntest"
	"drydock.dev/drydock/internal/qemu/qmptest"
	"drydock.dev/drydock/internal/qemu/runstate"
	"drydock.dev/drydock/internal/rules/vmi/vmihandler"
)

const mebibyte = 1 << 20

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// round returns the facts of a guest of 64Mi, with room for 512Mi, that should have the given size, and whose pod has
// the resources for it.
func round(size string) concern.Round {
	enough := corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}}
	vmi := &v1.VirtualMachineInstance{}
	vmi.Spec.Domain.Memory = &v1.Memory{Guest: new(resource.MustParse(size)), MaxGuest: new(resource.MustParse("576Mi"))}
	vmi.Status.Phase = v1.Running
	vmi.Status.Memory = &v1.MemoryStatus{GuestAtBoot: new(resource.MustParse("64Mi")), GuestRequested: new(resource.MustParse(size))}
	vmi.Status.Conditions = []v1.VirtualMachineInstanceCondition{{Type: v1.VirtualMachineInstanceMemoryChange, Status: corev1.ConditionTrue}}
	return concern.Round{
		VMI: vmi, Pod: &vmihandler.Pod{Resources: &enough}, Resources: &enough, RunState: runstate.Running, Now: noon,
	}
}

func TestWhatIsToldOfMemory(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at := func(m Seen, after time.Duration) Seen { return m.at(now.Add(after)) }
	first := Seen{}.with(256*mebibyte, 0, now)
	taking := first.with(256*mebibyte, 64*mebibyte, now.Add(5*time.Second))
	full := Seen{}.with(256*mebibyte, 256*mebibyte, now)
	releasing := full.with(128*mebibyte, 256*mebibyte, now).with(128*mebibyte, 192*mebibyte, now.Add(5*time.Second))
	for name, test := range map[string]struct {
		m             Seen
		size          int64
		after, looked time.Duration
		kept          string
	}{
		"nothing is known":            {Seen{}, 0, 0, 0, ""},
		"what it has":                 {full, 256, 0, 0, ""},
		"what it has after an hour":   {at(full, time.Hour), 256, 0, time.Hour, ""},
		"at first":                    {first, 0, 10 * time.Second, 0, ""},
		"while it is taken":           {taking, 0, 10 * time.Second, 5 * time.Second, ""},
		"nearly at rest":              {at(taking, 15*time.Second-1), 0, 1, 15*time.Second - 1, ""},
		"at rest":                     {at(taking, 15*time.Second), 64, 50 * time.Second, 15 * time.Second, ""},
		"when it has been taken":      {taking.with(256*mebibyte, 256*mebibyte, now.Add(6*time.Second)), 256, 0, 6 * time.Second, ""},
		"while it is released":        {releasing, 256, 10 * time.Second, 5 * time.Second, ""},
		"when some is kept":           {at(releasing, 15*time.Second), 192, 50 * time.Second, 15 * time.Second, ""},
		"while it may need its time":  {at(releasing, 65*time.Second-1), 192, 1, 65*time.Second - 1, ""},
		"when it does not need that":  {at(releasing, 65*time.Second), 192, 0, 65 * time.Second, "the guest does not give its memory back: it has kept 192Mi, of which it is to keep 128Mi, for 1m0s; its system may be using it"},
		"when it does not take more":  {at(taking, 65*time.Second), 64, 0, 65 * time.Second, "the guest does not take the memory that it is given: it has taken 64Mi of 256Mi for 1m0s; its system may have no driver for virtio-mem, or may not bring memory into use"},
		"the same said again":         {at(taking.with(256*mebibyte, 64*mebibyte, now.Add(14*time.Second)), 15*time.Second), 64, 50 * time.Second, 15 * time.Second, ""},
		"another request starts anew": {at(taking, time.Hour).with(512*mebibyte, 64*mebibyte, now.Add(time.Hour)), 64, 10 * time.Second, time.Hour, ""},
	} {
		t.Run(name, func(t *testing.T) {
			looked := now.Add(test.looked)
			if got := test.m.facts(); got.Size != test.size*mebibyte || got.Known != (test.m != Seen{}) {
				t.Errorf("it tells %+v, want %d MiB", got, test.size)
			}
			if after := test.m.after(looked); after != test.after {
				t.Errorf("it is looked at after %v, want %v", after, test.after)
			}
			if kept := test.m.problem(looked); kept != test.kept {
				t.Errorf("it says %q, want %q", kept, test.kept)
			}
		})
	}
}

func isKnown(given, has int64) func(Plan) bool {
	want := vmihandler.Memory{Known: true, Requested: given * mebibyte, Size: has * mebibyte}
	return func(p Plan) bool { return p.Has == want }
}

func TestMemoryIsGivenAndTaken(t *testing.T) {
	qemu := qmptest.New(t)
	c := &Concern{}
	d := concerntest.Drive(t, qemu, c, round("64Mi"))
	give := func(size int64) error {
		return d.Act(Plan{MemoryStep: vmihandler.MemoryStep{Set: true, To: size}})
	}
	if m := c.LastKnown(); m.Known {
		t.Errorf("nobody has asked, and it has %+v", m)
	}
	d.Await("no memory", isKnown(0, 0))
	if d.Look(); qemu.Executed("query-memory-devices") != 1 {
		t.Errorf("QEMU was asked %d times", qemu.Executed("query-memory-devices"))
	}
	if err := give(128 * mebibyte); err != nil || qemu.GivenMemory() != 128*mebibyte {
		t.Fatalf("the guest is given %d: %v", qemu.GivenMemory(), err)
	}
	d.Await("the request", isKnown(128, 0))
	qemu.TakeMemory(64 * mebibyte)
	d.AwaitNews()
	d.Await("a guest that still takes it", isKnown(128, 0))
	d.Pass(stableAfter)
	d.Await("a part", isKnown(128, 64))
	qemu.TakeMemory(128 * mebibyte)
	if p := d.Await("all of it", isKnown(128, 128)); p.Problem != "" || c.LastKnown().Size != 128*mebibyte {
		t.Errorf("it says %q and knows %+v", p.Problem, c.LastKnown())
	}
	if err := give(mebibyte); err == nil {
		t.Error("half a block was given")
	}
	if err := give(0); err != nil {
		t.Fatal(err)
	}
	d.Pass(patience)
	if p := d.Await("what it keeps", isKnown(0, 128)); p.Problem == "" {
		t.Error("what it keeps is not told")
	}
}

func TestMemoryIsAskedForAgainWhenItMayDiffer(t *testing.T) {
	qemu := qmptest.New(t)
	concerntest.CheckQuestion(t, qemu, concerntest.Drive(t, qemu, &Concern{}, round("64Mi")), concerntest.Question[Plan]{
		Command: "query-memory-devices", Event: "MEMORY_DEVICE_SIZE_CHANGE", Known: func(p Plan) bool { return p.Has.Known },
	})
}

func TestAGuestWithoutRoomIsNotAskedForItsMemory(t *testing.T) {
	qemu := qmptest.New(t)
	r := round("64Mi")
	r.VMI.Spec.Domain.Memory.MaxGuest = nil
	if p := concerntest.Drive(t, qemu, &Concern{}, r).Look(); qemu.Executed("query-memory-devices") != 0 || p != (Plan{}) {
		t.Errorf("QEMU was asked, or there is a plan: %+v", p)
	}
}

func TestWhenMemoryIsChanged(t *testing.T) {
	none := Seen{}.with(0, 0, noon.Add(-time.Hour))
	half := none.with(64*mebibyte, 0, noon.Add(-5*time.Second))
	kept := none.with(64*mebibyte, 0, noon.Add(-time.Minute))
	const problem = "the guest does not take the memory that it is given: it has taken 0 of 64Mi for 1m0s; its system may have no driver for virtio-mem, or may not bring memory into use"
	has := func(requested int64) vmihandler.Memory {
		return vmihandler.Memory{Known: true, Requested: requested * mebibyte}
	}
	given := func(size int64) vmihandler.MemoryStep { return vmihandler.MemoryStep{Given: size * mebibyte} }
	for name, test := range map[string]struct {
		size   string
		seen   Seen
		change func(*concern.Round)
		want   Plan
	}{
		"nothing is known": {"128Mi", Seen{}, func(*concern.Round) {}, Plan{}},
		"it has all":       {"64Mi", none, func(*concern.Round) {}, Plan{Has: has(0)}},
		"more": {"128Mi", none, func(*concern.Round) {}, Plan{
			Next: concern.Next{Due: true}, Has: has(0), MemoryStep: vmihandler.MemoryStep{Given: 64 * mebibyte, Set: true, To: 64 * mebibyte},
		}},
		"more, before the status says so": {"128Mi", none, func(r *concern.Round) {
			r.VMI.Status.Memory.GuestRequested = new(resource.MustParse("64Mi"))
		}, Plan{Has: has(0), MemoryStep: given(64)}},
		"more, before the guest is reported": {"128Mi", none, func(r *concern.Round) { r.VMI.Status.Phase = v1.Scheduled }, Plan{
			Has: has(0), MemoryStep: vmihandler.MemoryStep{Given: 64 * mebibyte, Set: true, To: 64 * mebibyte},
		}},
		"less": {"64Mi", half, func(*concern.Round) {}, Plan{
			Next: concern.Next{Due: true, After: 5 * time.Second}, Has: has(64), MemoryStep: vmihandler.MemoryStep{Given: 64 * mebibyte, Set: true},
		}},
		"it has not taken it for long": {"128Mi", kept, func(*concern.Round) {}, Plan{
			Next: concern.Next{Problem: problem}, Has: has(64), MemoryStep: given(64),
		}},
		"nor while it is paused":    {"128Mi", kept, func(r *concern.Round) { r.RunState = runstate.Paused }, Plan{Has: has(64), MemoryStep: given(64)}},
		"it is being migrated":      {"128Mi", none, func(r *concern.Round) { r.Migrating = true }, Plan{Has: has(0)}},
		"its pod is not known":      {"128Mi", none, func(r *concern.Round) { r.Resources = nil }, Plan{Has: has(0)}},
		"its pod has too little":    {"128Mi", none, func(r *concern.Round) { r.Pod = nil }, Plan{Has: has(0)}},
		"it has not been announced": {"128Mi", none, func(r *concern.Round) { r.VMI.Status.Conditions = nil }, Plan{Has: has(0)}},
	} {
		r := round(test.size)
		test.change(&r)
		if diff := cmp.Diff(test.want, (&Concern{}).Decide(r, test.seen)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
