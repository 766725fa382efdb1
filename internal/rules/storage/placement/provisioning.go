package placement

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"drydock.dev/drydock/internal/rules/pod/podstatus"
	"drydock.dev/drydock/internal/rules/storage/datavolume"
)

const (
	// A failed provisioning pod of this age is replaced: a node that rejects every pod is not asked many times a second.
	failedPodPause = 15 * time.Second
	// Nodes change too often to be watched while a claim is being bound.
	nodeCheck = 15 * time.Second
	// New nodes and moved volumes cause no event here.
	dividedCheck = 30 * time.Second
)

// Observed is the input of Decide.
type Observed struct {
	// Wanted means that the VMI is to start and has no launcher pod.
	Wanted bool
	Claims []Claim
	Pod    *corev1.Pod
	// Confirmed means that Claims and Topologies were just read from the API server.
	Confirmed  bool
	Topologies []Topology
	Now        time.Time
}

// State is the state of a VMI's disks.
type State string

// The states of the package's diagram.
const (
	Unwanted     State = "Unwanted"
	Missing      State = "Missing"
	Filling      State = "Filling"
	Provisioning State = "Provisioning"
	Divided      State = "Divided"
	Clear        State = "Clear"
)

// Plan is the result of Decide.
type Plan struct {
	State   State
	Message string
	// Confirm asks for a Confirmed observation.
	Confirm        bool
	Create, Delete bool
	After          time.Duration
}

// Decide returns the plan.
func Decide(o Observed) Plan {
	p := Plan{}
	p.State, p.Message = state(o)
	switch p.State {
	case Provisioning:
		provision(o, &p)
	case Clear:
		p.Delete = o.Pod != nil
		p.Confirm = len(o.Claims) > 0 && !o.Confirmed
	case Filling:
		// The scheduler sets the pod's node within a second after it bound the claims.
		beingScheduled := o.Pod != nil && podstatus.BeingScheduled(o.Pod) && !anyOf(o.Claims, func(c *Claim) bool { return !c.bound() })
		p.Delete = o.Pod != nil && !beingScheduled
	default:
		p.Delete = o.Pod != nil
	}
	if p.State == Divided {
		p.After = dividedCheck
	}
	return p
}

func state(o Observed) (State, string) {
	switch {
	case !o.Wanted:
		return Unwanted, ""
	case anyOf(o.Claims, (*Claim).missing):
		return Missing, "these claims do not exist: " + strings.Join(MissingClaims(o.Claims), ", ")
	case anyOf(o.Claims, (*Claim).unsettled):
		return Filling, notFilled(o.Claims)
	}
	divided := o.Confirmed && !shareNode(o.Topologies)
	switch {
	case provisions(o) && divided, allFilled(o.Claims) && divided:
		return Divided, describeApart(o.Topologies)
	case provisions(o):
		return Provisioning, "finding a node on which the VM fits and these claims can be bound: " + strings.Join(Unbound(o.Claims), ", ")
	case !allFilled(o.Claims):
		return Filling, notFilled(o.Claims)
	}
	return Clear, ""
}

// provisions keeps the pod until all its claims are bound: they must not get another node when the first DataVolume
// continues. CDI's populators bind a claim only when it is filled; its DataVolume continues before that.
func provisions(o Observed) bool {
	if anyOf(o.Claims, (*Claim).waits) {
		return true
	}
	unserved := func(c *Claim) bool { return !c.bound() && (c.Source == "" || c.waits()) }
	return o.Pod != nil && anyOf(o.Claims, unserved) && !allFilled(o.Claims)
}

func provision(o Observed, p *Plan) {
	switch {
	case o.Pod == nil && !o.Confirmed:
		p.Confirm = true
	case o.Pod == nil:
		p.Create = true
	case o.Pod.DeletionTimestamp != nil:
		// The successor has the same name. Without a grace period a visible deletion was interrupted, and nobody else
		// completes it.
		p.Delete = true
	case podstatus.Terminal(o.Pod):
		if left := o.Pod.CreationTimestamp.Add(failedPodPause).Sub(o.Now); left > 0 {
			p.After = left
			return
		}
		p.Delete = true
	}
}

// MissingClaims returns the names of claims that neither exist nor have a DataVolume.
func MissingClaims(claims []Claim) []string { return names(claims, (*Claim).missing) }

// Unbound returns the unbound claims' names.
func Unbound(claims []Claim) []string {
	return names(claims, func(c *Claim) bool { return c.Claim != nil && !c.bound() })
}

// FilledByDataVolumes reports whether DataVolumes fill any claim.
func FilledByDataVolumes(claims []Claim) bool {
	return anyOf(claims, func(c *Claim) bool { return c.Source != "" })
}

func allFilled(claims []Claim) bool {
	return !anyOf(claims, func(c *Claim) bool { return !c.filled() })
}

func anyOf(claims []Claim, is func(*Claim) bool) bool {
	for i := range claims {
		if is(&claims[i]) {
			return true
		}
	}
	return false
}

func names(claims []Claim, is func(*Claim) bool) []string {
	var out []string
	for i := range claims {
		if is(&claims[i]) {
			out = append(out, claims[i].Name)
		}
	}
	return out
}

func notFilled(claims []Claim) string {
	var wrong []string
	var waiting []*cdiv1.DataVolume
	for i := range claims {
		switch c := &claims[i]; {
		case c.filled():
		case c.awaitsUpload():
			wrong = append(wrong, datavolume.Unfilled(c.Claim, nil))
		case c.DataVolume == nil:
			wrong = append(wrong, fmt.Sprintf("DataVolume %s, which fills claim %s, does not exist", c.Source, c.Name))
		default:
			waiting = append(waiting, c.DataVolume)
		}
	}
	if said := Waiting(waiting); said != "" {
		wrong = append(wrong, said)
	}
	return strings.Join(wrong, "; ")
}

// Waiting returns why DataVolumes are not filled.
func Waiting(list []*cdiv1.DataVolume) string {
	var said, others []string
	for _, dv := range list {
		if sentence, _ := Trouble(dv); sentence != "" {
			said = append(said, sentence)
		} else {
			others = append(others, dv.Name)
		}
	}
	if len(others) > 0 {
		said = append(said, "waiting for DataVolumes to be filled: "+strings.Join(others, ", "))
	}
	return strings.Join(said, "; ")
}
