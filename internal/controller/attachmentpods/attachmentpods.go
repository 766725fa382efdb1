// Package attachmentpods finds out what keeps an attachment pod from running, for the loops that
// tell of it.
//
// It owns the order in which that is looked for: what the pod says itself is package hotplugpod's, and
// which event counts package objectevent's. It changes nothing.
package attachmentpods

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/controller/objectevents"
	"drydock.dev/drydock/internal/rules/hotplugpod"
)

// Obstacle is what keeps a pod from running: what it says itself, or else the newest warning about it,
// since only events report a volume that can't be attached or mounted. The reader must ask the API server
// itself.
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
