// Package attachmentpods finds out why an attachment pod does not run.
//
// It owns the order of the lookups, and must change nothing. hotplugpod reads the pod's status, and objectevent decides
// which event counts.
package attachmentpods

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/controller/objectevents"
	"drydock.dev/drydock/internal/rules/hotplug/hotplugpod"
)

// Obstacle returns the reason in the pod's status, or else the newest warning about the pod: only events report a
// volume that can't be attached. The reader must ask the API server.
func Obstacle(ctx context.Context, reader client.Reader, pod *corev1.Pod) (string, error) {
	if said := hotplugpod.Obstacle(pod); said != "" {
		return said, nil
	}
	said := fmt.Sprintf("the attachment pod %s does not start", pod.Name)
	newest, err := objectevents.NewestWarning(ctx, reader, pod)
	switch {
	case err != nil:
		return "", fmt.Errorf("looking what keeps the attachment pod: %w", err)
	case newest == nil:
		return said, nil
	}
	return fmt.Sprintf("%s: %s: %s", said, newest.Reason, newest.Message), nil
}
