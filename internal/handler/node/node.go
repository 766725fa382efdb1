// Package node reports what a node can do for VMs, as labels for the scheduler.
//
// It owns the labels of the Node object that begin with KubeVirt's prefixes for
// scheduling, those with the probe's results and the one for SELinux, and the events about a
// change of the probe's results. It writes labels only when they differ: whether the
// node lives is in its Ready condition, and there is no heartbeat (decision 043). Where virt-handler has left the
// node, virt-controller sets kubevirt.io/schedulable to false; the next virt-handler sets it again.
package node

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/events"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/contracts/nodeprobe"
	"drydock.dev/drydock/internal/rules/backoff"
)

// prefixes are of labels of which a node has one for each thing that it can.
var prefixes = []string{v1.CPUModelLabel, v1.HostModelCPULabel}

// Labels are those that a node with this probe has (decisions 195 and 196).
func Labels(probe nodeprobe.Result) map[string]string {
	labels := map[string]string{v1.NodeSchedulable: strconv.FormatBool(probe.Use() != "")}
	for _, c := range capabilities(probe) {
		labels[c.label] = c.state
	}
	for _, model := range probe.CPUModels {
		labels[v1.CPUModelLabel+model] = "true"
	}
	if probe.HostModel != "" {
		labels[v1.HostModelCPULabel+probe.HostModel] = "true"
	}
	return labels
}

// Patch is the merge patch that gives a node the labels that it wants, and takes
// away those of ours that it does not; nil when nothing would change.
func Patch(have, want map[string]string) ([]byte, error) {
	changes := map[string]any{}
	for name, value := range want {
		if have[name] != value {
			changes[name] = value
		}
	}
	for name := range have {
		if _, wanted := want[name]; !wanted && ours(name) {
			changes[name] = nil
		}
	}
	if len(changes) == 0 {
		return nil, nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": changes}})
	if err != nil {
		return nil, fmt.Errorf("encoding a patch: %w", err)
	}
	return patch, nil
}

func ours(label string) bool {
	for _, prefix := range prefixes {
		if strings.HasPrefix(label, prefix) {
			return true
		}
	}
	return label == layout.SELinuxLabel
}

// Labeler gives a node its labels.
type Labeler struct {
	Reader client.Reader
	Writer client.Writer
	Node   string
	Probe  nodeprobe.Result
	// SELinux says that the node has SELinux.
	SELinux bool
	// Offers are the resources that the kubelet is offered, and the node with it: their names.
	Offers []string
	// Recorder takes the events on the node.
	Recorder events.EventRecorder
	Log      logr.Logger

	reported bool
	once     sync.Once
	offering chan struct{}
}

// The delays bound the back-off from an API server that is away, and the looks at a node whose kubelet has not
// offered the devices yet: it does so within ten seconds.
const (
	firstDelay   = 200 * time.Millisecond
	longestDelay = 30 * time.Second
	firstLook    = 2 * time.Second
	longestLook  = time.Minute
)

// Run labels the node, as often as it takes, looks at the labels again when the kubelet offers the devices, and returns.
//
// virt-controller says false of a node that virt-handler has left, and only while the devices are not offered
// (package rules/schedulable). Such a write may come when virt-handler is back already; it has come by the time of the
// last look, or never does.
func (l *Labeler) Run(ctx context.Context) error {
	l.until(ctx, backoff.Doubling(firstDelay, longestDelay), func(bool) bool { return true })
	l.until(ctx, backoff.Doubling(firstLook, longestLook), func(offered bool) bool { return offered })
	if ctx.Err() == nil {
		close(l.offered())
	}
	return nil
}

// Await returns when the node has its labels and offers the devices, so that a guest that is made now gets a node.
func (l *Labeler) Await(ctx context.Context) error {
	select {
	case <-l.offered():
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the node %s does not have its labels and its devices (%s) yet", l.Node, strings.Join(l.Offers, ", "))
	}
}

// offered is closed when Await is to return.
func (l *Labeler) offered() chan struct{} {
	l.once.Do(func() { l.offering = make(chan struct{}) })
	return l.offering
}

// until labels the node until that has come about and is enough.
func (l *Labeler) until(ctx context.Context, delays wait.Backoff, enough func(offered bool) bool) {
	backoff.Retry(ctx, delays, func(ctx context.Context) bool {
		offered, err := l.label(ctx)
		if err != nil && ctx.Err() == nil {
			l.Log.Info("the node could not be labeled; trying again", "reason", err.Error())
		}
		return err == nil && enough(offered)
	})
}

// offers reports whether the node offers all that it is to.
func (l *Labeler) offers(node *corev1.Node) bool {
	return !slices.ContainsFunc(l.Offers, func(resource string) bool {
		devices := node.Status.Allocatable[corev1.ResourceName(resource)]
		return devices.IsZero()
	})
}

// label labels the node, and reports whether the kubelet offered the devices when the labels were looked at.
func (l *Labeler) label(ctx context.Context) (offered bool, err error) {
	node := &corev1.Node{}
	if err := l.Reader.Get(ctx, client.ObjectKey{Name: l.Node}, node); err != nil {
		return false, fmt.Errorf("reading node %s: %w", l.Node, err)
	}
	if !l.reported {
		// Before the labels, by which it would be known that it has been told: an
		// event too many is better than one too few.
		for _, r := range Reports(node.Labels, l.Probe) {
			l.Recorder.Eventf(node, nil, r.Type, r.Reason, "Probe", "%s", r.Message)
		}
		l.reported = true
	}
	want := Labels(l.Probe)
	if l.SELinux {
		want[layout.SELinuxLabel] = layout.SELinuxEnabled
	}
	offered = l.offers(node)
	patch, err := Patch(node.Labels, want)
	if err != nil || patch == nil {
		return offered, err
	}
	if err := l.Writer.Patch(ctx, node, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return offered, fmt.Errorf("labeling node %s: %w", l.Node, err)
	}
	return offered, nil
}
