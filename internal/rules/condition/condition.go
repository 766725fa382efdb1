// Package condition finds, sets and drops conditions in the lists that the
// KubeVirt API's statuses hold: one rule for every kind of object of when a
// transition's time changes, which decides whether a write is needed at all.
//
// It must not know any condition by name: the owner of a condition decides what it
// says.
package condition

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// shape is what all conditions of the API look like; only their types' types
// differ.
type shape[K ~string] struct {
	Type                              K
	Status                            corev1.ConditionStatus
	LastProbeTime, LastTransitionTime metav1.Time
	Reason, Message                   string
}

// Condition is any of the API's conditions whose type is a K. It repeats shape
// with the API's tags, which belong to a type's identity.
type Condition[K ~string] interface {
	~struct {
		Type               K                      `json:"type"`
		Status             corev1.ConditionStatus `json:"status"`
		LastProbeTime      metav1.Time            `json:"lastProbeTime,omitempty"`
		LastTransitionTime metav1.Time            `json:"lastTransitionTime,omitempty"`
		Reason             string                 `json:"reason,omitempty"`
		Message            string                 `json:"message,omitempty"`
	}
}

// Find is the condition of a type in the list, nil when there is none.
func Find[C Condition[K], K ~string](list []C, kind K) *C {
	if i := index(list, kind); i >= 0 {
		return &list[i]
	}
	return nil
}

// IsTrue reports whether the list has the condition with status True.
func IsTrue[C Condition[K], K ~string](list []C, kind K) bool {
	i := index(list, kind)
	return i >= 0 && shape[K](list[i]).Status == corev1.ConditionTrue
}

// Set makes want the condition of its type. The time of its last transition
// changes only with its status, so that saying the same again changes nothing.
func Set[C Condition[K], K ~string](list *[]C, want C, now time.Time) {
	next := shape[K](want)
	// The API server keeps whole seconds.
	next.LastTransitionTime = metav1.NewTime(now.Truncate(time.Second))
	i := index(*list, next.Type)
	if i < 0 {
		*list = append(*list, C(next))
		return
	}
	current := shape[K]((*list)[i])
	if current.Status == next.Status {
		next.LastTransitionTime = current.LastTransitionTime
	}
	next.LastProbeTime = current.LastProbeTime
	(*list)[i] = C(next)
}

// Drop takes the condition of a type out of the list.
func Drop[C Condition[K], K ~string](list *[]C, kind K) {
	*list = slices.DeleteFunc(*list, func(c C) bool { return shape[K](c).Type == kind })
}

func index[C Condition[K], K ~string](list []C, kind K) int {
	return slices.IndexFunc(list, func(c C) bool { return shape[K](c).Type == kind })
}

// refused comes after what is being done, while the API server refuses it for now.
const refused = "; the API server refuses it for now: "

// longestRefusal bounds the words of others in a condition.
const longestRefusal = 1024

// Refused is a message of what is being done, with what the API server says against it.
func Refused(message, refusal string) string {
	if len(refusal) > longestRefusal {
		refusal = strings.ToValidUTF8(refusal[:longestRefusal], "") + "…"
	}
	return Doing(message) + refused + refusal
}

// Doing is what of a message says what is being done.
func Doing(message string) string {
	doing, _, _ := strings.Cut(message, refused)
	return doing
}

// Refusal is what of a message the API server says against it, "" for nothing.
func Refusal(message string) string {
	_, refusal, _ := strings.Cut(message, refused)
	return refusal
}

// Again is the message of what is being done after an earlier one: what was said against it is said until something else
// is being done.
func Again(was, message string) string {
	if Doing(was) == message {
		return was
	}
	return message
}
