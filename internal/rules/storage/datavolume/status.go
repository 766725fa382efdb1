package datavolume

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"drydock.dev/drydock/internal/contracts/transfer"
	"drydock.dev/drydock/internal/rules/object/objectevent"
)

// Reasons besides those of transfer.Result.
const (
	ReasonBound           = "Bound"
	ReasonPending         = "Pending"
	ReasonWaiting         = "WaitForFirstConsumer"
	ReasonNotFound        = "NotFound"
	ReasonClaimLost       = "ClaimLost"
	ReasonTransferRunning = "TransferRunning"
	ReasonCompleted       = "Completed"
	ReasonError           = "Error"
	ReasonPodRunning      = "Pod is running"
	ReasonExists          = "ErrResourceExists"
	ReasonIncompatible    = "ErrIncompatiblePVC"
	ReasonNoClass         = "ErrClaimNotValid"
	ReasonNotAllowed      = "CloneSourceNotAllowed"
	ReasonSourceNotFound  = "CloneSourceNotFound"
	ReasonSourceNotReady  = "CloneSourceNotReady"
	ReasonSourceInUse     = "CloneSourceInUse"
	ReasonWorkerGone      = "WorkerGone"
	ReasonClaimInUse      = "ClaimInUse"
	// ReasonQuota and ReasonForbidden mean that the API server refused an object.
	ReasonQuota           = "ErrExceededQuota"
	ReasonForbidden       = "ErrForbidden"
	ReasonImagePullFailed = "ImagePullFailed"
)

const (
	progressUnknown cdiv1.DataVolumeProgress = "N/A"
	progressDone    cdiv1.DataVolumeProgress = "100.0%"
)

// pace is the shortest interval between two updates of the progress.
const pace = 2 * time.Second

type condition struct {
	status          corev1.ConditionStatus
	reason, message string
}

func isTrue(reason, message string) condition {
	return condition{corev1.ConditionTrue, reason, message}
}
func isFalse(reason, message string) condition {
	return condition{corev1.ConditionFalse, reason, message}
}

// The transition time changes with the status, the heartbeat with any field.
func set(list *[]cdiv1.DataVolumeCondition, kind cdiv1.DataVolumeConditionType, c condition, now time.Time) {
	at := metav1.NewTime(now.Truncate(time.Second))
	want := cdiv1.DataVolumeCondition{
		Type: kind, Status: c.status, Reason: c.reason, Message: c.message, LastTransitionTime: at, LastHeartbeatTime: at,
	}
	i := slices.IndexFunc(*list, func(c cdiv1.DataVolumeCondition) bool { return c.Type == kind })
	if i < 0 {
		*list = append(*list, want)
		return
	}
	current := &(*list)[i]
	if current.Status == want.Status {
		want.LastTransitionTime = current.LastTransitionTime
		if current.Reason == want.Reason && current.Message == want.Message {
			return
		}
	}
	*current = want
}

// Condition returns the condition of the type, nil when there is none.
func Condition(dv *cdiv1.DataVolume, kind cdiv1.DataVolumeConditionType) *cdiv1.DataVolumeCondition {
	return lastCondition(dv.Status.Conditions, kind)
}

func lastCondition(list []cdiv1.DataVolumeCondition, kind cdiv1.DataVolumeConditionType) *cdiv1.DataVolumeCondition {
	for i := range list {
		if list[i].Type == kind {
			return &list[i]
		}
	}
	return nil
}

// FailureDetail returns ": " and the failure's message, "" for none.
func FailureDetail(dv *cdiv1.DataVolume) string {
	if running := Condition(dv, cdiv1.DataVolumeRunning); running != nil && running.Message != "" {
		return ": " + running.Message
	}
	return ""
}

func boundCondition(dv *cdiv1.DataVolume, claim *corev1.PersistentVolumeClaim) condition {
	switch {
	case claim == nil:
		return isFalse(ReasonNotFound, "No PVC found")
	case claim.Status.Phase == corev1.ClaimBound:
		return isTrue(ReasonBound, fmt.Sprintf("PVC %s Bound", dv.Name))
	case claim.Status.Phase == corev1.ClaimLost:
		return isFalse(ReasonClaimLost, fmt.Sprintf("PVC %s Lost", dv.Name))
	}
	return isFalse(ReasonPending, fmt.Sprintf("PVC %s Pending", dv.Name))
}

// Refused returns the plan after the API server refused to create an object.
func Refused(dv *cdiv1.DataVolume, claim *corev1.PersistentVolumeClaim, why string, now time.Time) Plan {
	reason := ReasonForbidden
	if strings.Contains(why, "exceeded quota") {
		reason = ReasonQuota
	}
	why = objectevent.Fit(why)
	plan := Plan{Status: *dv.Status.DeepCopy(), Event: &Event{corev1.EventTypeWarning, reason, why}}
	list := &plan.Status.Conditions
	if claim == nil {
		set(list, cdiv1.DataVolumeBound, isFalse(reason, why), now)
	}
	set(list, cdiv1.DataVolumeReady, isFalse(reason, ""), now)
	set(list, cdiv1.DataVolumeRunning, isFalse(reason, why), now)
	return plan
}

// The progress never decreases.
func grown(before cdiv1.DataVolumeProgress, told *transfer.Progress) cdiv1.DataVolumeProgress {
	if before == "" {
		before = progressUnknown
	}
	if told == nil || told.Total <= 0 {
		return before
	}
	// Only a complete transfer is at 100 %.
	percent := min(100*float64(told.Done)/float64(told.Total), 99.99)
	if percent < percentOf(before) {
		return before
	}
	return cdiv1.DataVolumeProgress(fmt.Sprintf("%.2f%%", max(percent, 0)))
}

// percentOf returns -1 for an unknown progress.
func percentOf(p cdiv1.DataVolumeProgress) float64 {
	value, err := strconv.ParseFloat(strings.TrimSuffix(string(p), "%"), 64)
	if err != nil {
		return -1
	}
	return value
}

func describe(p *transfer.Progress) string {
	if p == nil {
		return ""
	}
	words := p.Step
	switch {
	case p.Total > 0:
		words = join(words, fmt.Sprintf("%s of %s", size(p.Done), size(p.Total)))
	case p.Done > 0:
		words = join(words, size(p.Done))
	}
	if p.SecondsLeft > 0 {
		words = join(words, fmt.Sprintf("about %s left", time.Duration(p.SecondsLeft)*time.Second))
	}
	return words
}

func join(a, b string) string {
	if a == "" {
		return b
	}
	return a + ", " + b
}

func size(bytes int64) string {
	const unit = 1024
	if bytes < unit {
		return fmt.Sprintf("%d B", bytes)
	}
	// The prefixes suffice: an int64 is less than 8 EiB.
	value, names := float64(bytes)/unit, "KMGTPE"
	for value >= unit {
		value, names = value/unit, names[1:]
	}
	return fmt.Sprintf("%.1f %ciB", value, names[0])
}
