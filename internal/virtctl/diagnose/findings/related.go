package findings

import (
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"drydock.dev/drydock/internal/rules/object/objectevent"
	"drydock.dev/drydock/internal/virtctl/obstacle"
)

// related has the facts of checks that need more than one object. Events come after the objects that they are about.
type related struct {
	// guests counts the VMIs that run, by node; handlers has the nodes with a virt-handler that is ready.
	guests   map[string]int
	handlers map[string]bool
	// waiting are claims that are not bound, by UID.
	waiting map[string]*waitingClaim
}

type waitingClaim struct {
	about   string
	since   time.Time
	noClass bool
	events  []corev1.Event
}

// Bounds of the remembered objects.
const (
	maxClaims = 500
	maxEvents = 20 // of one claim
)

func (r *related) see(o *Object) {
	switch o.Kind {
	case vmis:
		if node := o.Text("status", "nodeName"); node != "" && o.Text("status", "phase") == "Running" {
			if r.guests == nil {
				r.guests = map[string]int{}
			}
			r.guests[node]++
		}
	case pods:
		if o.GetLabels()["kubevirt.io"] == "virt-handler" && o.condition("Ready", isTrue) != nil {
			if r.handlers == nil {
				r.handlers = map[string]bool{}
			}
			r.handlers[o.Text("spec", "nodeName")] = true
		}
	case claims:
		r.seeClaim(o)
	case "events":
		r.seeEvent(o)
	}
}

func (r *related) seeClaim(o *Object) {
	if o.Text("status", "phase") != "Pending" || len(r.waiting) >= maxClaims {
		return
	}
	if r.waiting == nil {
		r.waiting = map[string]*waitingClaim{}
	}
	r.waiting[string(o.GetUID())] = &waitingClaim{
		about: o.about(), since: o.GetCreationTimestamp().Time, noClass: o.Text("spec", "storageClassName") == "",
	}
}

func (r *related) seeEvent(o *Object) {
	claim := r.waiting[o.Text("involvedObject", "uid")]
	if claim == nil {
		return
	}
	var event corev1.Event
	if runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &event) != nil {
		return
	}
	if claim.events = append(claim.events, event); len(claim.events) > maxEvents {
		claim.events = claim.events[1:]
	}
}

// ended returns the findings after the last object.
func (r *related) ended(now time.Time) []Finding {
	var found []Finding
	// Without any virt-handler's pod, their namespace was not read.
	for _, node := range slices.Sorted(maps.Keys(r.guests)) {
		if !r.handlers[node] && len(r.handlers) > 0 {
			found = append(found, Finding{
				Check: "guests without virt-handler", About: "node " + node, Runbook: "OrphanedVirtualMachineInstances",
				Says: fmt.Sprintf("it has %s and no virt-handler that is ready", plural(r.guests[node], "guest", "guests")),
			})
		}
	}
	for _, claim := range r.waiting {
		text := ""
		if warning := objectevent.NewestWarning(claim.events); warning != nil {
			text = obstacle.Sentence(warning.Reason, warning.Message)
		} else if claim.noClass {
			text = "it names no storage class, and there is no volume for it"
		}
		if text != "" && isSlow(claim.since, now) {
			found = append(found, Finding{Check: "claim not bound", About: claim.about, Says: text, Since: claim.since})
		}
	}
	return found
}
