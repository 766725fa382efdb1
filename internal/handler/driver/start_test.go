package driver

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/handler/disk"
	"drydock.dev/drydock/internal/handler/runningguest"
	"drydock.dev/drydock/internal/rules/vmi/starttrace"
)

// traces makes the node send its traces to a channel.
func (n *node) traces() <-chan []starttrace.Span {
	sent := make(chan []starttrace.Span, 10)
	n.traced = func(spans []starttrace.Span) { sent <- spans }
	n.firstLine = func(context.Context, *runningguest.Guest) (time.Time, bool) { return time.Now(), true }
	return sent
}

// newTracedNode returns a node with a VMI and its pod, with the times that Kubernetes gives them.
func newTracedNode(t *testing.T, uid string) (*node, *pod, <-chan []starttrace.Span) {
	t.Helper()
	vmi, now := scheduled(uid), metav1.NewTime(time.Now().Truncate(time.Second))
	vmi.CreationTimestamp = now
	n := newModelNode(t, vmi)
	p := n.newPod(n.api.vmi)
	p.object.CreationTimestamp = now
	p.object.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: now}}
	return n, p, n.traces()
}

func awaitTrace(t *testing.T, sent <-chan []starttrace.Span) []starttrace.Span {
	t.Helper()
	select {
	case spans := <-sent:
		return spans
	case <-time.After(patience):
		t.Fatal("no trace was sent")
		return nil
	}
}

func names(spans []starttrace.Span) []string {
	var list []string
	for _, s := range spans {
		list = append(list, s.Name)
	}
	return list
}

func TestAStartIsTraced(t *testing.T) {
	t.Parallel()
	n, p, sent := newTracedNode(t, "traced")
	m := n.launcher()
	h := n.startHandler(p)
	spans := awaitTrace(t, sent)
	want := []string{
		starttrace.Start, starttrace.Pod, starttrace.Bind, starttrace.Sandbox, starttrace.Launcher,
		starttrace.Network, starttrace.Disks, starttrace.QEMU, starttrace.FirstLine,
	}
	if diff := cmp.Diff(want, names(spans)); diff != "" {
		t.Errorf("spans (-want +got):\n%s", diff)
	}
	root := spans[0]
	if root.Failed != "" || root.Attributes[starttrace.AcceleratorKey] != "tcg" || root.Attributes[starttrace.NodeKey] != "node1" ||
		root.Attributes[starttrace.NameKey] != "web" || root.Attributes[starttrace.IncompleteKey] != "" {
		t.Errorf("the root is %+v", root)
	}
	for _, s := range spans[5:] {
		if s.Begin.Before(p.object.CreationTimestamp.Time) || !s.End.After(s.Begin) || s.Attributes[starttrace.WholeSecondsKey] != "" {
			t.Errorf("%s was from %v to %v: %v", s.Name, s.Begin, s.End, s.Attributes)
		}
	}
	// The trace is sent once, and costs no write.
	n.machine(h, "traced")
	n.api.update(remove)
	n.api.await(t, "the end", phase(v1.Succeeded))
	h.stop()
	if patches, _, _ := n.api.counts(); patches != 2 || m.starts() != 1 || len(sent) > 0 {
		t.Errorf("a traced life cost %d patches and %d starts; %d more traces were sent", patches, m.starts(), len(sent))
	}
}

func TestAGuestThatWritesNothingIsTracedAfterAWhile(t *testing.T) {
	t.Parallel()
	n, p, sent := newTracedNode(t, "quiet")
	listens := make(chan struct{})
	n.firstLine = func(ctx context.Context, _ *runningguest.Guest) (time.Time, bool) {
		close(listens)
		<-ctx.Done()
		return time.Time{}, false
	}
	n.launcher()
	h := n.startHandler(p)
	n.api.await(t, "a guest that runs", well)
	<-listens
	awaitTrue(t, "a trace", func() bool {
		n.pass(2 * time.Minute) // the driver may not have seen yet that the guest runs
		h.supervisor.WakeAll()
		return len(sent) > 0
	})
	if got := names(awaitTrace(t, sent)); slices.Contains(got, starttrace.FirstLine) || !slices.Contains(got, starttrace.QEMU) {
		t.Errorf("the spans are %v", got)
	}
}

func TestAStartUnderTwoVirtHandlersIsTraced(t *testing.T) {
	t.Parallel()
	n, p, sent := newTracedNode(t, "midway")
	n.launcher()
	n.api.setAway(true)
	first := n.startHandler(p)
	n.machine(first, "midway") // QEMU runs, and the status does not say so
	first.stop()
	if len(sent) > 0 {
		t.Errorf("there is a trace of a start that has not ended: %v", names(<-sent))
	}
	n.api.setAway(false)
	n.startHandler(p)
	spans := awaitTrace(t, sent)
	if got := names(spans); slices.Contains(got, starttrace.QEMU) || slices.Contains(got, starttrace.Network) || spans[0].Attributes[starttrace.IncompleteKey] == "" {
		t.Errorf("the second virt-handler knows %v, and says %v", got, spans[0].Attributes)
	}
}

func TestAFailedStartIsTraced(t *testing.T) {
	t.Parallel()
	n, p, sent := newTracedNode(t, "failed")
	n.disks = func(context.Context, disk.Pod, *v1.VirtualMachineInstance) error {
		return errors.New("the Secret has no key")
	}
	n.launcher()
	n.startHandler(p)
	n.api.await(t, "condition Synchronized", func(vmi *v1.VirtualMachineInstance) bool { return visibleFailure(vmi) != "" })
	n.api.update(func(vmi *v1.VirtualMachineInstance) { vmi.Status.Phase, vmi.Status.Reason = v1.Failed, "GivenUp" })
	spans := awaitTrace(t, sent)
	if got := names(spans); spans[0].Failed != "GivenUp" || slices.Contains(got, starttrace.QEMU) || !slices.Contains(got, starttrace.Launcher) {
		t.Errorf("the trace is %v, failed: %q", got, spans[0].Failed)
	}
}

func TestAGuestThatHasStartedBeforeIsNotTraced(t *testing.T) {
	t.Parallel()
	n, _, first := driven(t, "before")
	first.stop()
	sent := n.traces()
	second := n.startHandler(n.newPod(n.api.vmi))
	n.machine(second, "before")
	n.api.update(remove)
	n.api.await(t, "the end", phase(v1.Succeeded))
	second.stop()
	if len(sent) > 0 {
		t.Errorf("there is a trace: %v", names(<-sent))
	}
}

func TestAMigrationIsNoStart(t *testing.T) {
	t.Parallel()
	v := newVoyage(t)
	sent := v.to.traces()
	v.beginAndCopy(nil)
	v.release()
	v.api.await(t, "the completion", completed)
	v.arrive()
	v.to.pausesAndRuns()
	v.to.stop()
	if len(sent) > 0 {
		t.Errorf("there is a trace: %v", names(<-sent))
	}
}
