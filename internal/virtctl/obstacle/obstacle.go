// Package obstacle finds the condition of a machine that names its obstacle. The condition's writer has decided; this
// package only chooses the most precise one. It is pure.
package obstacle

import (
	"cmp"
	"strings"
	"time"
)

// Condition is a condition of an object of any kind.
type Condition struct {
	Type, Status, Reason, Message string
	Since                         time.Time
}

const (
	isTrue  = "True"
	isFalse = "False"
	unknown = "Unknown"
)

// order has the conditions that name an obstacle, the most precise first, and the status in which they do.
var order = []struct{ kind, status string }{
	{"Failure", isTrue},
	{"PodScheduled", isFalse},
	{"Synchronized", isFalse},
	{"DataVolumesReady", isFalse},
	{"Provisioning", isTrue},
	{"Ready", isFalse},
	{"Ready", unknown},
}

// Of returns the condition that names the obstacle of a VM or VMI, nil if none does.
func Of(conditions []Condition) *Condition {
	for _, o := range order {
		for i := range conditions {
			if c := &conditions[i]; c.Type == o.kind && c.Status == o.status && c.Says() != "" {
				return c
			}
		}
	}
	return nil
}

// Says returns the condition's message, or its reason.
func (c *Condition) Says() string { return cmp.Or(c.Message, c.Reason) }

// Sentence joins the parts that are not empty, as in REASON: MESSAGE.
func Sentence(parts ...string) string {
	var said []string
	for _, part := range parts {
		if part != "" {
			said = append(said, part)
		}
	}
	return strings.Join(said, ": ")
}
