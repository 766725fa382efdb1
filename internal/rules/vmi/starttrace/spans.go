package starttrace

import (
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Span is one span of a trace.
type Span struct {
	Name       string
	TraceID    [16]byte
	SpanID     [8]byte
	Parent     [8]byte // zero for the root
	Begin, End time.Time
	Attributes map[string]string
	// Failed is the reason of a failure, "" for none.
	Failed string
}

// The names of attributes.
const (
	NamespaceKey   = "k8s.namespace.name"
	NodeKey        = "k8s.node.name"
	NameKey        = "drydock.vmi.name"
	UIDKey         = "drydock.vmi.uid"
	AcceleratorKey = "drydock.accelerator"
	// WholeSecondsKey marks a span with a time that Kubernetes has cut to whole seconds.
	WholeSecondsKey = "drydock.whole_seconds"
	// ClockSkewKey marks a trace with times that had to be moved: the clocks of two machines differ.
	ClockSkewKey = "drydock.clock_skew"
	// IncompleteKey marks a trace without the stages of an earlier virt-handler.
	IncompleteKey = "drydock.incomplete"
)

const (
	// maxValue bounds an attribute, in bytes. The longest is a name.
	maxValue = 253
	// skew is how far two clocks may differ unnoticed, in addition to the cut to whole seconds.
	skew = time.Second
	yes  = "true"
)

// AdmissionSpan returns virt-api's span of a new VMI. Nobody knows the VMI's node yet.
func AdmissionSpan(namespace, name string, uid types.UID, at Interval) Span {
	b := builder{facts: &Facts{Namespace: namespace, Name: name, UID: uid}}
	return b.span(Admission, at)
}

// Spans returns the trace, the root first and the others in the order of their stages. No span begins before the root,
// or ends before it begins.
func Spans(f *Facts) []Span {
	b := builder{facts: f}
	all := append(b.others(), b.own()...)
	root := b.span(Start, Interval{Begin: b.created(), End: b.end(all)})
	root.Parent = [8]byte{}
	if !f.Created.IsZero() {
		root.Attributes[WholeSecondsKey] = yes
	}
	if b.skewed {
		root.Attributes[ClockSkewKey] = yes
	}
	if f.QEMU.End.IsZero() && !f.Running.IsZero() {
		root.Attributes[IncompleteKey] = yes
	}
	if f.Running.IsZero() {
		root.Failed = "the guest has not run"
		if f.Reason != "" {
			root.Failed = bounded(f.Reason)
		}
	}
	return append([]Span{root}, all...)
}

type builder struct {
	facts  *Facts
	skewed bool
}

func (b *builder) span(name string, at Interval) Span {
	f := b.facts
	s := Span{
		Name: name, TraceID: TraceID(f.UID), SpanID: SpanID(f.UID, name), Parent: SpanID(f.UID, Start),
		Begin: at.Begin, End: at.End, Attributes: map[string]string{},
	}
	for key, value := range map[string]string{
		NamespaceKey: f.Namespace, NameKey: f.Name, UIDKey: string(f.UID), NodeKey: f.Node, AcceleratorKey: f.Accelerator,
	} {
		if value != "" {
			s.Attributes[key] = bounded(value)
		}
	}
	return s
}

func bounded(value string) string {
	value = strings.ToValidUTF8(value, "")
	return strings.ToValidUTF8(value[:min(len(value), maxValue)], "")
}

// others returns the stages until virt-launcher is connected, which follow each other. Each ends when its successor
// begins; a stage of unknown end has no span, and its time is its successor's.
func (b *builder) others() []Span {
	f := b.facts
	// virt-handler's own times limit those by other clocks.
	limit := firstOf(f.LauncherStarted, f.Connected, f.Network.Begin, f.QEMU.Begin, f.Running, f.Ended)
	at, coarse := b.created(), true
	var all []Span
	for _, stage := range []struct {
		name   string
		end    time.Time
		coarse bool
	}{
		{Pod, f.PodCreated, true},
		{Bind, f.bound(), f.bound().Equal(f.Scheduled)},
		{Sandbox, f.LauncherStarted, false},
		{Launcher, f.connected(), false},
	} {
		if stage.end.IsZero() {
			continue
		}
		end := stage.end
		if stage.name == Pod || stage.name == Bind {
			end = b.earliest(end, limit)
		}
		end = b.latest(end, at)
		s := b.span(stage.name, Interval{Begin: at, End: end})
		if coarse || stage.coarse {
			s.Attributes[WholeSecondsKey] = yes
		}
		all = append(all, s)
		at, coarse = end, stage.coarse
	}
	return all
}

// created returns when the VMI was created, limited by the node's own times.
func (b *builder) created() time.Time {
	f := b.facts
	first := firstOf(f.Shown, f.LauncherStarted, f.Connected, f.Network.Begin, f.QEMU.Begin, f.Running, f.Ended)
	if f.Created.IsZero() {
		return firstOf(f.PodCreated, f.Scheduled, first)
	}
	return b.earliest(f.Created, first)
}

// bound returns when the node had the VMI. virt-handler's own time counts unless it is late: virt-handler was restarted.
func (f *Facts) bound() time.Time {
	late := f.Shown.Sub(f.Scheduled)
	switch {
	case f.Shown.IsZero(), !f.LauncherStarted.IsZero() && f.Shown.After(f.LauncherStarted):
		return f.Scheduled
	case f.Scheduled.IsZero(), late >= 0 && late < time.Second+skew:
		return f.Shown
	}
	return f.Scheduled
}

// connected returns the zero time for a connection that is not the first.
func (f *Facts) connected() time.Time {
	if f.QEMU.Begin.IsZero() && !f.Running.IsZero() {
		return time.Time{}
	}
	return f.Connected
}

// own returns the stages with both times by the node's clock. They may overlap.
func (b *builder) own() []Span {
	f := b.facts
	var all []Span
	for _, stage := range []struct {
		name string
		at   Interval
	}{
		{Network, f.Network},
		{Disks, f.Disks},
		{QEMU, f.QEMU},
		{FirstLine, Interval{Begin: latestOf(f.QEMU.End, f.QEMU.Begin), End: f.FirstLine}},
	} {
		if stage.at.Begin.IsZero() || stage.at.End.IsZero() {
			continue
		}
		begin := b.latest(stage.at.Begin, b.created())
		all = append(all, b.span(stage.name, Interval{Begin: begin, End: b.latest(stage.at.End, begin)}))
	}
	return all
}

// end returns when the start has ended: the guest's first line or, without it, the phase Running or the guest's end.
func (b *builder) end(all []Span) time.Time {
	f := b.facts
	end := f.Running
	if end.IsZero() {
		end = f.Ended
	}
	end = latestOf(end, f.FirstLine, b.created())
	for _, s := range all {
		end = latestOf(end, s.End)
	}
	return end
}

// earliest returns at, or limit if it is known and earlier.
func (b *builder) earliest(at, limit time.Time) time.Time {
	if limit.IsZero() || !at.After(limit) {
		return at
	}
	b.skewed = b.skewed || at.Sub(limit) > skew
	return limit
}

// latest returns at, or since if that is later. at may be cut to whole seconds.
func (b *builder) latest(at, since time.Time) time.Time {
	if !at.Before(since) {
		return at
	}
	b.skewed = b.skewed || since.Sub(at) > time.Second+skew
	return since
}

func firstOf(times ...time.Time) time.Time {
	var first time.Time
	for _, t := range times {
		if !t.IsZero() && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	return first
}

func latestOf(times ...time.Time) time.Time {
	var latest time.Time
	for _, t := range times {
		if t.After(latest) {
			latest = t
		}
	}
	return latest
}
