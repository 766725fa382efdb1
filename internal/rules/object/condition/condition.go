// Package condition finds, sets and drops conditions in the status lists of the KubeVirt API. It owns the rule of when
// a transition time changes, which decides whether a write is needed. It must not know any condition by name: a
// condition's owner decides its content.
package condition

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Conditions of the API differ only in the type of Type.
type shape[K ~string] struct {
	Type                              K
	Status                            corev1.ConditionStatus
	LastProbeTime, LastTransitionTime metav1.Time
	Reason, Message                   string
}

// Condition is any of the API's whose Type is a K. The API's tags belong to a type's identity.
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

// Find returns the condition of a type, nil for none.
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

// Set adds or replaces the condition of want's type. The transition time changes only with the status, so setting equal
// content changes nothing.
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

// Drop removes the condition of a type.
func Drop[C Condition[K], K ~string](list *[]C, kind K) {
	*list = slices.DeleteFunc(*list, func(c C) bool { return shape[K](c).Type == kind })
}

func index[C Condition[K], K ~string](list []C, kind K) int {
	return slices.IndexFunc(list, func(c C) bool { return shape[K](c).Type == kind })
}

// refused separates the current action from the API server's refusal of it.
const refused = "; the API server refuses it for now: "

// longestRefusal bounds other components' text in a condition.
const longestRefusal = 1024

// Refused returns the message with the API server's refusal appended.
func Refused(message, refusal string) string {
	if len(refusal) > longestRefusal {
		refusal = strings.ToValidUTF8(refusal[:longestRefusal], "") + "…"
	}
	return Doing(message) + refused + refusal
}

// Doing returns the message without the refusal.
func Doing(message string) string {
	doing, _, _ := strings.Cut(message, refused)
	return doing
}

// Refusal returns the refusal in a message, "" for none.
func Refusal(message string) string {
	_, refusal, _ := strings.Cut(message, refused)
	return refusal
}

// Again returns the new message with the refusal of the earlier one, if both are about the same action.
func Again(was, message string) string {
	if Doing(was) == message {
		return was
	}
	return message
}
