package launcherpod

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"drydock.dev/drydock/internal/contracts/layout"
)

// The scheduler's minimum weight: the VMI's own preferences count more.
const preferPostCopy = 1

// PostCopyNodes selects, by label, nodes where a target pod may run.
type PostCopyNodes struct {
	// Lacking nodes don't start a pod that names the profile. On Usable nodes a launcher with it has userfaultfd.
	Lacking, Usable labels.Selector
}

// NodesForPostCopy returns the selectors that decide whether a target pod gets userfaultfd: if no node is Lacking and
// one is Usable (decision 363). They ignore the VMI's affinity, so more nodes than the pod can use must have the
// profile. It fails for impossible labels.
func NodesForPostCopy(pod *corev1.Pod) (PostCopyNodes, error) {
	may, wrong := labels.ValidatedSelectorFromSet(pod.Spec.NodeSelector)
	lacks, ofLacks := labels.NewRequirement(layout.PostCopyLabel, selection.DoesNotExist, nil)
	uses, ofUses := labels.NewRequirement(layout.PostCopyLabel, selection.Equals, []string{layout.PostCopyUsable})
	if err := errors.Join(wrong, ofLacks, ofUses); err != nil {
		return PostCopyNodes{}, fmt.Errorf("selecting the nodes that the pod may come to: %w", err)
	}
	return PostCopyNodes{Lacking: may.Add(*lacks), Usable: may.Add(*uses)}, nil
}

// LetPostCopy gives a target pod the profile with which QEMU may call userfaultfd: the pod requires a node with it, and
// prefers one whose kernel supports it.
func LetPostCopy(pod *corev1.Pod) error {
	has := corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
		{Key: layout.PostCopyLabel, Operator: corev1.NodeSelectorOpExists},
	}}
	if err := RequireNodes(pod, []*corev1.NodeSelector{{NodeSelectorTerms: []corev1.NodeSelectorTerm{has}}}); err != nil {
		return err
	}
	node := pod.Spec.Affinity.NodeAffinity
	node.PreferredDuringSchedulingIgnoredDuringExecution = append(node.PreferredDuringSchedulingIgnoredDuringExecution,
		corev1.PreferredSchedulingTerm{Weight: preferPostCopy, Preference: corev1.NodeSelectorTerm{
			MatchExpressions: []corev1.NodeSelectorRequirement{
				{Key: layout.PostCopyLabel, Operator: corev1.NodeSelectorOpIn, Values: []string{layout.PostCopyUsable}},
			},
		}})
	for i := range pod.Spec.Containers {
		// The runtime's other processes keep the pod's own profile.
		if c := &pod.Spec.Containers[i]; c.Name == layout.ComputeContainer {
			c.SecurityContext.SeccompProfile = &corev1.SeccompProfile{
				Type: corev1.SeccompProfileTypeLocalhost, LocalhostProfile: new(layout.LauncherSeccompProfile),
			}
		}
	}
	return nil
}
