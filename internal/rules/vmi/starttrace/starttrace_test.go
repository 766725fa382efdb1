package starttrace

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"pgregory.net/rapid"

	"drydock.dev/drydock/internal/propertytest"
)

const uid = "5d307ca9-b3ef-428c-8861-06e72d69f223"

var noon = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

func at(seconds float64) time.Time {
	return noon.Add(time.Duration(seconds * float64(time.Second)).Round(time.Millisecond))
}

func healthy() Facts {
	return Facts{
		Namespace: "shop", Name: "web", UID: uid, Node: "node1", Accelerator: "kvm",
		Created: at(0), PodCreated: at(0), Scheduled: at(1),
		Shown: at(1.2), LauncherStarted: at(1.7), Connected: at(1.8),
		Network: Interval{at(1.8), at(1.9)}, Disks: Interval{at(1.8), at(2)}, QEMU: Interval{at(2), at(2.3)},
		Running: at(2.4), FirstLine: at(4.5),
	}
}

// show formats spans in seconds since noon, with their marks.
func show(spans []Span) []string {
	var lines []string
	for _, s := range spans {
		line := fmt.Sprintf("%s %g-%g", s.Name, s.Begin.Sub(noon).Seconds(), s.End.Sub(noon).Seconds())
		for _, mark := range []string{WholeSecondsKey, ClockSkewKey, IncompleteKey} {
			if s.Attributes[mark] != "" {
				line += " " + strings.TrimPrefix(mark, "drydock.")
			}
		}
		if s.Failed != "" {
			line += " failed: " + s.Failed
		}
		lines = append(lines, line)
	}
	return lines
}

func TestSpans(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Facts)
		want   []string
	}{
		"a start with all its stages": {func(*Facts) {}, []string{
			"VM start 0-4.5 whole_seconds", "pod 0-0 whole_seconds", "bind 0-1.2 whole_seconds", "sandbox 1.2-1.7", "virt-launcher 1.7-1.8",
			"network 1.8-1.9", "disks 1.8-2", "QEMU 2-2.3", "first line 2.3-4.5",
		}},
		"a guest without a serial console": {func(f *Facts) { f.FirstLine, f.Mute = time.Time{}, true }, []string{
			"VM start 0-2.4 whole_seconds", "pod 0-0 whole_seconds", "bind 0-1.2 whole_seconds", "sandbox 1.2-1.7", "virt-launcher 1.7-1.8",
			"network 1.8-1.9", "disks 1.8-2", "QEMU 2-2.3",
		}},
		"the pod's times and that of the process are missing": {func(f *Facts) {
			f.PodCreated, f.Scheduled, f.LauncherStarted = time.Time{}, time.Time{}, time.Time{}
		}, []string{
			"VM start 0-4.5 whole_seconds", "bind 0-1.2 whole_seconds", "virt-launcher 1.2-1.8",
			"network 1.8-1.9", "disks 1.8-2", "QEMU 2-2.3", "first line 2.3-4.5",
		}},
		"virt-handler was restarted before it started QEMU": {func(f *Facts) {
			f.Shown, f.Connected = at(9), at(9.1)
			f.Network, f.Disks, f.QEMU = Interval{at(9.1), at(9.2)}, Interval{at(9.1), at(9.2)}, Interval{at(9.2), at(9.5)}
			f.Running, f.FirstLine = at(9.6), at(9.7)
		}, []string{
			"VM start 0-9.7 whole_seconds", "pod 0-0 whole_seconds", "bind 0-1 whole_seconds", "sandbox 1-1.7 whole_seconds", "virt-launcher 1.7-9.1",
			"network 9.1-9.2", "disks 9.1-9.2", "QEMU 9.2-9.5", "first line 9.5-9.7",
		}},
		"virt-handler was restarted after it started QEMU": {func(f *Facts) {
			f.Shown, f.Connected = at(9), at(9.1)
			f.Network, f.Disks, f.QEMU = Interval{}, Interval{}, Interval{}
			f.Running, f.FirstLine, f.Mute = at(9.3), time.Time{}, true
		}, []string{
			"VM start 0-9.3 whole_seconds incomplete", "pod 0-0 whole_seconds", "bind 0-1 whole_seconds", "sandbox 1-1.7 whole_seconds",
		}},
		"the API server's clock is ahead of the node's": {func(f *Facts) {
			f.Created, f.PodCreated, f.Scheduled = at(60), at(60), at(61)
		}, []string{
			"VM start 1.2-4.5 whole_seconds clock_skew", "pod 1.2-1.7 whole_seconds", "bind 1.7-1.7 whole_seconds", "sandbox 1.7-1.7 whole_seconds", "virt-launcher 1.7-1.8",
			"network 1.8-1.9", "disks 1.8-2", "QEMU 2-2.3", "first line 2.3-4.5",
		}},
		"the node's clock goes back during the start": {func(f *Facts) {
			f.QEMU, f.Running, f.FirstLine = Interval{at(2), at(-3)}, at(-2.9), at(-1)
		}, []string{
			"VM start -2.9-2 whole_seconds clock_skew", "pod -2.9--2.9 whole_seconds", "bind -2.9--2.9 whole_seconds", "sandbox -2.9-1.7", "virt-launcher 1.7-1.8",
			"network 1.8-1.9", "disks 1.8-2", "QEMU 2-2", "first line 2-2",
		}},
		"the scheduler's clock is behind": {func(f *Facts) { f.Created, f.PodCreated, f.Scheduled = at(1), at(1), at(0) }, []string{
			"VM start 1-4.5 whole_seconds", "pod 1-1 whole_seconds", "bind 1-1.2 whole_seconds", "sandbox 1.2-1.7", "virt-launcher 1.7-1.8",
			"network 1.8-1.9", "disks 1.8-2", "QEMU 2-2.3", "first line 2.3-4.5",
		}},
		"QEMU never ran": {func(f *Facts) {
			f.QEMU.End, f.Running, f.FirstLine = time.Time{}, time.Time{}, time.Time{}
			f.Ended, f.Reason = at(8), "QEMUFailed"
		}, []string{
			"VM start 0-8 whole_seconds failed: QEMUFailed", "pod 0-0 whole_seconds", "bind 0-1.2 whole_seconds", "sandbox 1.2-1.7", "virt-launcher 1.7-1.8",
			"network 1.8-1.9", "disks 1.8-2",
		}},
		"virt-launcher never came": {func(f *Facts) {
			*f = Facts{UID: uid, Created: at(0), PodCreated: at(0), Scheduled: at(1), Shown: at(1.2), Ended: at(30)}
		}, []string{
			"VM start 0-30 whole_seconds failed: the guest has not run", "pod 0-0 whole_seconds", "bind 0-1.2 whole_seconds",
		}},
		"the guest ended before its first line": {func(f *Facts) { f.FirstLine, f.Ended = time.Time{}, at(3) }, []string{
			"VM start 0-2.4 whole_seconds", "pod 0-0 whole_seconds", "bind 0-1.2 whole_seconds", "sandbox 1.2-1.7", "virt-launcher 1.7-1.8",
			"network 1.8-1.9", "disks 1.8-2", "QEMU 2-2.3",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			facts := healthy()
			c.change(&facts)
			if diff := cmp.Diff(c.want, show(Spans(&facts))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Whatever the clocks say, a viewer gets a tree of spans with lengths, inside of the root.
func TestSpansAreInsideOfTheRoot(t *testing.T) {
	propertytest.Check(t, func(t *rapid.T) {
		draw := func(name string) time.Time {
			if rapid.Bool().Draw(t, "no "+name) {
				return time.Time{}
			}
			return at(rapid.Float64Range(-20, 20).Draw(t, name))
		}
		f := Facts{UID: uid}
		for i, fact := range []*time.Time{
			&f.Created, &f.PodCreated, &f.Scheduled, &f.Shown, &f.LauncherStarted, &f.Connected, &f.Network.Begin, &f.Network.End,
			&f.Disks.Begin, &f.Disks.End, &f.QEMU.Begin, &f.QEMU.End, &f.Running, &f.FirstLine,
		} {
			*fact = draw(fmt.Sprint("time ", i))
		}
		if f.Running.IsZero() {
			f.Ended = at(1)
		}
		spans := Spans(&f)
		root, seen := spans[0], map[string]bool{}
		for _, s := range spans {
			if s.End.Before(s.Begin) || s.Begin.Before(root.Begin) || s.End.After(root.End) || s.Begin.IsZero() || seen[s.Name] {
				t.Fatalf("%v in %v, of %+v", s, root, f)
			}
			seen[s.Name] = true
		}
	})
}

func TestIdentityOfSpans(t *testing.T) {
	facts := healthy()
	spans := Spans(&facts)
	spans = append(spans, AdmissionSpan("shop", "web", uid, Interval{at(0.3), at(0.4)}))
	ids := map[[8]byte]bool{}
	for i, s := range spans {
		if got := hex.EncodeToString(s.TraceID[:]); got != strings.ReplaceAll(uid, "-", "") {
			t.Errorf("%s is in trace %s", s.Name, got)
		}
		if isRoot := s.Parent == [8]byte{}; isRoot != (i == 0) || !isRoot && s.Parent != spans[0].SpanID {
			t.Errorf("the parent of %s is %x", s.Name, s.Parent)
		}
		if ids[s.SpanID] || s.SpanID == [8]byte{} {
			t.Errorf("%s has the ID %x, as another", s.Name, s.SpanID)
		}
		ids[s.SpanID] = true
	}
	if again := Spans(&facts); !slices.EqualFunc(again, spans[:len(again)], func(a, b Span) bool { return a.SpanID == b.SpanID }) {
		t.Error("spans of the same facts differ")
	}
	if TraceID("a") == TraceID("b") || TraceID("") == [16]byte{} || TraceID("00000000-0000-0000-0000-000000000000") == [16]byte{} {
		t.Error("UIDs of another form have no trace of their own")
	}
}

func TestAttributesAreBounded(t *testing.T) {
	facts := healthy()
	facts.Name, facts.Reason, facts.Running = strings.Repeat("ä", 1000), strings.Repeat("x", 1000), time.Time{}
	facts.Node = "a\xffb"
	for _, s := range Spans(&facts) {
		for key, value := range s.Attributes {
			if len(value) > maxValue || !utf8.ValidString(value) {
				t.Errorf("%s of %s is %q", key, s.Name, value)
			}
		}
		if len(s.Failed) > maxValue {
			t.Errorf("the failure has %d bytes", len(s.Failed))
		}
	}
	want := map[string]string{
		NamespaceKey: "shop", NameKey: "web", UIDKey: uid, NodeKey: "node1", AcceleratorKey: "kvm", WholeSecondsKey: "true",
	}
	whole := healthy()
	if diff := cmp.Diff(want, Spans(&whole)[0].Attributes); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{NamespaceKey: "shop", NameKey: "web", UIDKey: "u"}, AdmissionSpan("shop", "web", types.UID("u"), Interval{}).Attributes); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestWhenATraceIsDue(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Facts)
		due    bool
		after  time.Duration
	}{
		"the guest does not run yet":               {func(f *Facts) { f.Running = time.Time{} }, false, 0},
		"it has written its first line":            {func(f *Facts) { f.FirstLine = at(3) }, true, 0},
		"it has written nothing yet":               {func(*Facts) {}, false, lineWait - 10*time.Second},
		"it can't write":                           {func(f *Facts) { f.Mute = true }, true, 0},
		"it has written nothing for a long time":   {func(f *Facts) { f.Running = at(10).Add(-lineWait) }, true, 0},
		"it has ended":                             {func(f *Facts) { f.Ended = at(9) }, true, 0},
		"it has ended before it ran":               {func(f *Facts) { f.Running, f.Ended = time.Time{}, at(9) }, true, 0},
		"it wrote a line, and its phase is behind": {func(f *Facts) { f.Running, f.FirstLine = time.Time{}, at(3) }, false, 0},
	} {
		facts := Facts{Running: at(0)}
		c.change(&facts)
		if due, after := facts.Due(at(10)); due != c.due || after != c.after {
			t.Errorf("%s: due %v, after %v", name, due, after)
		}
	}
}

func TestWhichVMIsAreTraced(t *testing.T) {
	for phase, want := range map[v1.VirtualMachineInstancePhase]bool{
		v1.VmPhaseUnset: true, v1.Pending: true, v1.Scheduling: true, v1.Scheduled: true,
		v1.Running: false, v1.Succeeded: false, v1.Failed: false,
	} {
		if got := Traced(phase); got != want {
			t.Errorf("phase %q: %v", phase, got)
		}
	}
}
