package upload

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/contracts/transfer"
	"drydock.dev/drydock/internal/rules/pod/podstatus"
	"drydock.dev/drydock/internal/rules/storage/datavolume"
)

const pause = 500 * time.Millisecond

const answerTimeout = 10 * time.Second

// maxUnreachable bounds the attempts to connect to a worker that the kubelet reaches: more would not help.
const maxUnreachable = 2

type worker struct {
	cluster client.Reader
	claim   types.NamespacedName
}

// await returns the address of a worker that accepts an upload at path. The pod shows the reason for waiting.
func (k *worker) await(ctx context.Context, transport http.RoundTripper, path string, patience time.Duration) (string, error) {
	var address, waiting string
	var refusal error
	unreachable := 0
	err := wait.PollUntilContextTimeout(ctx, pause, patience, true, func(ctx context.Context) (bool, error) {
		pod := &corev1.Pod{}
		name := types.NamespacedName{Namespace: k.claim.Namespace, Name: transfer.UploadName(k.claim.Name)}
		if err := k.cluster.Get(ctx, name, pod); apierrors.IsNotFound(err) {
			waiting = "its worker has not been started; does the claim wait for its first consumer?"
			return false, nil
		} else if err != nil {
			return false, err
		}
		address, waiting, refusal = reach(pod, k.claim)
		if address == "" {
			return refusal != nil, nil
		}
		var silent bool
		if waiting, silent, refusal = k.ask(ctx, transport, "https://"+address+path); silent && ready(pod) {
			unreachable++
			waiting = fmt.Sprintf("its worker is ready, and virt-api gets no connection to it: a NetworkPolicy of the namespace %s may keep Drydock "+
				"from its pods of the label app=containerized-data-importer; docs/uploads.md has the policy that lets uploads in", k.claim.Namespace)
		}
		return waiting == "" || unreachable == maxUnreachable, nil
	})
	switch {
	case refusal != nil:
		return "", refusal
	case wait.Interrupted(err), unreachable == maxUnreachable:
		return "", apierrors.NewServiceUnavailable(fmt.Sprintf("PVC %s takes no upload yet: %s", k.claim, waiting))
	case err != nil:
		return "", fmt.Errorf("looking for the worker of PVC %s: %w", k.claim, err)
	}
	return address, nil
}

// ready reports whether the kubelet reaches the worker.
func ready(pod *corev1.Pod) bool {
	c := podstatus.Condition(pod, corev1.PodReady)
	return c != nil && c.Status == corev1.ConditionTrue
}

// reach returns the worker's address, or why to wait, or an error if waiting is useless.
func reach(pod *corev1.Pod, claim types.NamespacedName) (address, waiting string, refusal error) {
	switch {
	case pod.Labels[v1.AppLabel] != datavolume.WorkerAppLabel:
		// Only virt-controller can make a pod with this label (config/rbac/pod-policy.yaml).
		return "", "", apierrors.NewServiceUnavailable(fmt.Sprintf("pod %s/%s, which has the name of the worker of PVC %s, is none of Drydock's; delete it",
			pod.Namespace, pod.Name, claim))
	case pod.Status.Phase == corev1.PodSucceeded:
		return "", "", apierrors.NewConflict(corev1.Resource("persistentvolumeclaims"), claim.Name,
			fmt.Errorf("PVC %s is already successfully populated", claim))
	case pod.DeletionTimestamp != nil:
		return "", "its worker is being replaced", nil
	case pod.Status.Phase != corev1.PodRunning || pod.Status.PodIP == "":
		return "", "its worker is " + strings.ToLower(string(pod.Status.Phase)) + reason(pod), nil
	}
	return net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(transfer.UploadPort)), "", nil
}

func reason(pod *corev1.Pod) string {
	c := podstatus.Condition(pod, corev1.PodScheduled)
	if c != nil && c.Status == corev1.ConditionFalse && c.Message != "" {
		return ": " + c.Message
	}
	for _, s := range pod.Status.ContainerStatuses {
		if s.State.Waiting != nil && s.State.Waiting.Reason != "" {
			return ": " + strings.TrimSuffix(s.State.Waiting.Reason+": "+s.State.Waiting.Message, ": ")
		}
	}
	return ""
}

// silent means that the connection timed out, and was not refused.
func (k *worker) ask(ctx context.Context, transport http.RoundTripper, url string) (waiting string, silent bool, refusal error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodHead, url, nil)
	if err != nil {
		return "", false, err
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		var dial *net.OpError
		return "its worker does not answer: " + err.Error(), errors.As(err, &dial) && dial.Op == "dial" && dial.Timeout(), nil
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body) // A HEAD response has no body.
	switch response.StatusCode {
	case http.StatusOK:
		return "", false, nil
	case http.StatusServiceUnavailable:
		return "", false, receivesAnother(k.claim)
	case http.StatusConflict:
		return "", false, apierrors.NewConflict(corev1.Resource("persistentvolumeclaims"), k.claim.Name,
			fmt.Errorf("PVC %s is already successfully populated", k.claim))
	}
	return "", false, fmt.Errorf("the worker of PVC %s answers %s", k.claim, response.Status)
}
