package upload

import (
	"context"
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
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/contracts/transfer"
	"drydock.dev/drydock/internal/rules/podstatus"
)

// pause between two looks at a worker that is not there yet.
const pause = 250 * time.Millisecond

// worker is the pod that fills a claim.
type worker struct {
	cluster client.Reader
	claim   types.NamespacedName
}

// await waits until the worker takes an upload at path, and gives its address.
// Its pod is asked for by name rather than its Service, so that what is waited
// for can be told.
func (k *worker) await(ctx context.Context, transport http.RoundTripper, path string, patience time.Duration) (string, error) {
	var address, waiting string
	var refusal error
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
		waiting, refusal = k.ask(ctx, transport, "https://"+address+path)
		return waiting == "", nil
	})
	switch {
	case refusal != nil:
		return "", refusal
	case wait.Interrupted(err):
		return "", apierrors.NewServiceUnavailable(fmt.Sprintf("PVC %s takes no upload yet: %s", k.claim, waiting))
	case err != nil:
		return "", fmt.Errorf("looking for the worker of PVC %s: %w", k.claim, err)
	}
	return address, nil
}

// reach gives the address of a worker's pod, or says what it waits for, or why
// there is no use in waiting.
func reach(pod *corev1.Pod, claim types.NamespacedName) (address, waiting string, refusal error) {
	switch {
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

// reason is what the cluster says about a pod that does not run.
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

// ask asks the worker whether it takes an upload.
func (k *worker) ask(ctx context.Context, transport http.RoundTripper, url string) (waiting string, refusal error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodHead, url, nil)
	if err != nil {
		return "", err
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return "its worker does not answer: " + err.Error(), nil
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body) // a HEAD has none
	switch response.StatusCode {
	case http.StatusOK:
		return "", nil
	case http.StatusServiceUnavailable:
		return "", apierrors.NewServiceUnavailable(fmt.Sprintf("PVC %s receives another upload already", k.claim))
	case http.StatusConflict:
		return "", apierrors.NewConflict(corev1.Resource("persistentvolumeclaims"), k.claim.Name,
			fmt.Errorf("PVC %s is already successfully populated", k.claim))
	}
	return "", fmt.Errorf("the worker of PVC %s answers %s", k.claim, response.Status)
}
