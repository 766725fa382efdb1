package diagnose

import (
	"cmp"
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/virtctl/diagnose/findings"
)

// loggedPod is a pod whose logs are read.
type loggedPod struct {
	pod        *unstructured.Unstructured
	containers []string
	// restarted has the containers with a log before the last restart.
	restarted map[string]bool
	node      string
	isGuests  bool
	isReady   bool
}

// ofGuests are the pods, by their label kubevirt.io, that belong to a tenant wherever they are.
var ofGuests = []string{layout.LauncherApp, layout.AttachmentApp, "virt-importer"}

// notePod remembers a pod whose logs are read.
func (c *collector) notePod(o object) {
	app := o.GetLabels()[component]
	allowed := logged[app]
	if len(allowed) == 0 || o.Text("status", "phase") == "Pending" && app != layout.LauncherApp {
		return
	}
	p := loggedPod{
		pod: &unstructured.Unstructured{Object: map[string]any{}}, restarted: map[string]bool{}, node: o.Text("spec", "nodeName"), isReady: true,
		isGuests: o.GetNamespace() != c.home || slices.Contains(ofGuests, app),
	}
	p.pod.SetName(o.GetName())
	p.pod.SetNamespace(o.GetNamespace())
	started := map[string]bool{}
	for _, status := range o.List("status", "containerStatuses") {
		name := findings.TextOf(status, "name")
		_, waits, _ := unstructured.NestedMap(status, "state", "waiting")
		count, _, _ := unstructured.NestedInt64(status, "restartCount")
		started[name], p.restarted[name] = !waits || count > 0, count > 0
		p.isReady = p.isReady && status["ready"] == true
	}
	for _, name := range allowed {
		if started[name] {
			p.containers = append(p.containers, name)
		}
	}
	switch {
	case len(p.containers) == 0:
	case p.isGuests:
		c.guests = append(c.guests, p)
	default:
		c.components = append(c.components, p)
	}
}

// choosePods bounds the pods. Those of the installation that are not ready come first, then those of the machines' nodes.
func (c *collector) choosePods() []loggedPod {
	slices.SortStableFunc(c.components, func(a, b loggedPod) int {
		return cmp.Or(last(a.isReady)-last(b.isReady), last(!c.nodes[a.node])-last(!c.nodes[b.node]))
	})
	if len(c.components) > maxComponents {
		c.miss("the logs of more than %d pods of the installation", maxComponents)
		c.components = c.components[:maxComponents]
	}
	if c.scope.vm == "" && len(c.guests) > maxPods {
		c.miss("the logs of more than %d pods of guests: name a VM with --vm for those of its pods", maxPods)
		c.guests = c.guests[:maxPods]
	}
	return slices.Concat(c.components, c.guests)
}

func last(is bool) int {
	if is {
		return 1
	}
	return 0
}

func (c *collector) readLogs(ctx context.Context) error {
	for _, p := range c.choosePods() {
		if p.isGuests && c.rules.Withholds(p.pod.GetNamespace()) {
			continue
		}
		for _, name := range p.containers {
			if err := c.readLog(ctx, p, name, false); err != nil {
				return err
			}
			if !p.restarted[name] {
				continue
			}
			if err := c.readLog(ctx, p, name, true); err != nil {
				return err
			}
		}
	}
	return nil
}
