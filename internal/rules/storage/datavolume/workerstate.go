package datavolume

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/transfer"
	"drydock.dev/drydock/internal/rules/pod/podstatus"
)

type worker struct {
	exists, terminating bool
	// dead means evicted, or ended without a valid result.
	dead bool
	// started means that the container has run at some time; since is its last start.
	started, running bool
	since            time.Time
	// ready means that it accepts an upload, keeps that it refuses to replace content.
	ready     bool
	completed bool
	keeps     bool
	// failure is the result of the last failed run.
	failure *transfer.Result
	// waiting and reason explain why the container does not run.
	waiting  string
	reason   string
	restarts int32
}

func observeWorker(pod *corev1.Pod) worker {
	if pod == nil {
		return worker{}
	}
	w := worker{exists: true, terminating: pod.DeletionTimestamp != nil, keeps: taskIn(pod).KeepContent}
	before, err := strconv.ParseInt(pod.Annotations[AnnRestarts], 10, 32)
	if err == nil {
		w.restarts = int32(before)
	}
	if c := podstatus.Condition(pod, corev1.PodScheduled); c != nil && c.Status == corev1.ConditionFalse {
		w.reason, w.waiting = c.Reason, c.Message
	}
	if c := podstatus.Condition(pod, corev1.PodReady); c != nil {
		w.ready = c.Status == corev1.ConditionTrue
	}
	if len(pod.Status.ContainerStatuses) > 0 {
		w.observeContainer(&pod.Status.ContainerStatuses[0])
	}
	w.dead = podstatus.Terminal(pod) && !w.completed && !w.permanent()
	if w.dead && w.failure == nil {
		message := "the worker pod was ended from outside"
		if pod.Status.Reason != "" {
			message += " (" + pod.Status.Reason + ")"
		}
		if pod.Status.Message != "" {
			message += ": " + pod.Status.Message
		}
		w.failure = &transfer.Result{Reason: transfer.ReasonInternal, Message: message}
	}
	return w
}

func taskIn(pod *corev1.Pod) (task transfer.Task) {
	for i := range pod.Spec.Containers {
		for _, env := range pod.Spec.Containers[i].Env {
			if env.Name == transfer.TaskEnv && json.Unmarshal([]byte(env.Value), &task) != nil {
				return transfer.Task{}
			}
		}
	}
	return task
}

func (w *worker) observeContainer(status *corev1.ContainerStatus) {
	w.restarts += status.RestartCount
	if w.running = status.State.Running != nil; w.running {
		w.since = status.State.Running.StartedAt.Time
	}
	if waiting := status.State.Waiting; waiting != nil && waiting.Reason != "ContainerCreating" {
		w.reason, w.waiting = waiting.Reason, waiting.Message
	}
	end := status.State.Terminated
	if end == nil {
		end = status.LastTerminationState.Terminated
	}
	w.started = w.running || end != nil || status.RestartCount > 0
	if end == nil {
		return
	}
	result := resultOf(end)
	if result.Reason == transfer.ReasonCompleted {
		w.completed = status.State.Terminated != nil
		return
	}
	w.failure = &result
}

// Completed requires exit code 0. A killed container leaves no result.
func resultOf(end *corev1.ContainerStateTerminated) transfer.Result {
	var result transfer.Result
	err := json.Unmarshal([]byte(end.Message), &result)
	if err == nil && (result.Reason == transfer.ReasonCompleted) == (end.ExitCode == 0) && result.Reason != "" {
		return result
	}
	message := fmt.Sprintf("the worker ended with exit code %d", end.ExitCode)
	if end.Reason != "" {
		message += " (" + end.Reason + ")"
	}
	return transfer.Result{Reason: transfer.ReasonInternal, Message: message + " and said no more"}
}

func (w *worker) permanent() bool { return w.failure != nil && w.failure.Reason.Permanent() }

// unfit reports whether the permission to overwrite changed after the worker was created. Workers of earlier versions
// always overwrite; one that found content it must not replace has failed for good.
func (w *worker) unfit(mayReplace bool) bool {
	switch {
	case !w.exists || w.completed:
		return false
	case mayReplace:
		return w.failure != nil && w.failure.Reason == transfer.ReasonHasContent
	}
	return !w.keeps && !w.permanent()
}
