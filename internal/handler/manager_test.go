package handler

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/launcherpod"
	"drydock.dev/drydock/internal/rules/nichotplug"
)

// What Multus says of a pod may be anybody's text.
func TestWhatAPodSaysOfItsNetworksIsKeptWithinBounds(t *testing.T) {
	for length, kept := range map[int]bool{0: false, 1: true, nichotplug.MaxAnnotation: true, nichotplug.MaxAnnotation + 1: false} {
		text := strings.Repeat("x", length)
		pod := &corev1.Pod{}
		pod.Annotations = map[string]string{nichotplug.StatusAnnotation: text, launcherpod.NetworksAnnotation: text, "other": "y"}
		object, err := stripPod(pod)
		if err != nil {
			t.Fatal(err)
		}
		got := object.(*corev1.Pod).Annotations
		for _, name := range []string{nichotplug.StatusAnnotation, launcherpod.NetworksAnnotation} {
			if _, there := got[name]; there != kept || got["other"] != "" {
				t.Errorf("of %d bytes of %s there is left: %v, %d annotations", length, name, there, len(got))
			}
		}
	}
}
