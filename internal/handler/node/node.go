// Package node labels the Node object for the scheduler.
//
// It owns the labels that begin with KubeVirt's prefixes for scheduling, those with the probe's results and the one
// for SELinux, and the events about a change of the probe's results. It writes labels only when they differ. There is
// no heartbeat: the node's Ready condition has its liveness (decision 043). After virt-handler has left the node,
// virt-controller sets kubevirt.io/schedulable to false; the next virt-handler sets it again.
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
	"drydock.dev/drydock/internal/rules/object/backoff"
)

var prefixes = []string{v1.CPUModelLabel, v1.HostModelCPULabel, v1.SupportedMachineTypeLabel}

// Labels returns a node's labels (decision 195).
func Labels(probe nodeprobe.Result) map[string]string {
	labels := map[string]string{v1.NodeSchedulable: strconv.FormatBool(probe.Use() != "")}
	for _, c := range capabilities(probe) {
		labels[c.label] = c.state
	}
	for _, model := range probe.CPUModels {
		labels[v1.CPUModelLabel+model] = "true"
	}
	for _, kind := range probe.MachineTypes {
		labels[v1.SupportedMachineTypeLabel+kind] = "true"
	}
	if probe.HostModel != "" {
		labels[v1.HostModelCPULabel+probe.HostModel] = "true"
	}
	if build := labelValue(probe.Build); build != "" {
		labels[layout.QEMULabel] = build
	}
	return labels
}

const longestValue = 63

// labelValue replaces the characters that a label's value can't hold.
func labelValue(text string) string {
	allowed := func(r rune) bool { return r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' }
	value := strings.Map(func(r rune) rune {
		if allowed(r) || r == '.' || r == '-' {
			return r
		}
		return '_'
	}, text)
	return strings.Trim(value[:min(len(value), longestValue)], "._-")
}

// Patch returns the merge patch for the wanted labels, nil without a change.
func Patch(have, want map[string]string) ([]byte, error) {
	changes := map[string]any{}
	for name, value := range want {
		if have[name] != value {
			changes[name] = value
		}
	}
	for name := range have {
		ours := name == layout.SELinuxLabel || name == layout.QEMULabel || slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
		if _, wanted := want[name]; !wanted && ours {
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

// Labeler labels a node.
type Labeler struct {
	Reader   client.Reader
	Writer   client.Writer
	Node     string
	Probe    nodeprobe.Result
	SELinux  bool
	Offers   []string
	Recorder events.EventRecorder
	Log      logr.Logger

	reported bool
	once     sync.Once
	offering chan struct{}
}

// Delays for an unreachable API server, and looks at a node whose kubelet does not offer the devices yet: it does so
// within ten seconds.
const (
	firstDelay   = 200 * time.Millisecond
	longestDelay = 30 * time.Second
	firstLook    = 2 * time.Second
	longestLook  = time.Minute
)

// Run labels the node, and again after the kubelet offers the devices.
//
// virt-controller writes false for a node that virt-handler has left, only while the devices are not offered (package
// rules/cluster/schedulable). Such a write may come after virt-handler's return, but not after the last look here.
func (l *Labeler) Run(ctx context.Context) error {
	l.retryUntil(ctx, backoff.Doubling(firstDelay, longestDelay), func(bool) bool { return true })
	l.retryUntil(ctx, backoff.Doubling(firstLook, longestLook), func(offered bool) bool { return offered })
	if ctx.Err() == nil {
		close(l.offered())
	}
	return nil
}

// Await returns when the node has its labels and the devices.
func (l *Labeler) Await(ctx context.Context) error {
	select {
	case <-l.offered():
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the node %s does not have its labels and its devices (%s) yet", l.Node, strings.Join(l.Offers, ", "))
	}
}

func (l *Labeler) offered() chan struct{} {
	l.once.Do(func() { l.offering = make(chan struct{}) })
	return l.offering
}

func (l *Labeler) retryUntil(ctx context.Context, delays wait.Backoff, enough func(offered bool) bool) {
	backoff.Retry(ctx, delays, func(ctx context.Context) bool {
		offered, err := l.label(ctx)
		if err != nil && ctx.Err() == nil {
			l.Log.Info("the node could not be labeled; trying again", "reason", err.Error())
		}
		return err == nil && enough(offered)
	})
}

// label reports whether the kubelet had offered the devices before.
func (l *Labeler) label(ctx context.Context) (offered bool, err error) {
	node := &corev1.Node{}
	if err := l.Reader.Get(ctx, client.ObjectKey{Name: l.Node}, node); err != nil {
		return false, fmt.Errorf("reading node %s: %w", l.Node, err)
	}
	if !l.reported {
		// The labels mark the events as sent: a duplicate is better than a lost one.
		for _, r := range Reports(node.Labels, l.Probe) {
			l.Recorder.Eventf(node, nil, r.Type, r.Reason, "Probe", "%s", r.Message)
		}
		l.reported = true
	}
	want := Labels(l.Probe)
	if l.SELinux {
		want[layout.SELinuxLabel] = layout.SELinuxEnabled
	}
	offered = !slices.ContainsFunc(l.Offers, func(resource string) bool {
		devices := node.Status.Allocatable[corev1.ResourceName(resource)]
		return devices.IsZero()
	})
	patch, err := Patch(node.Labels, want)
	if err != nil || patch == nil {
		return offered, err
	}
	if err := l.Writer.Patch(ctx, node, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return offered, fmt.Errorf("labeling node %s: %w", l.Node, err)
	}
	return offered, nil
}
