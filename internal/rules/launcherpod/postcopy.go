package launcherpod

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"drydock.dev/drydock/internal/contracts/layout"
)

// preferPostCopy is the least weight that the scheduler knows: where the VMI has preferences of its own, they count
// more.
const preferPostCopy = 1

// PostCopyNodes select, by their labels, some of the nodes that a target pod may come to.
type PostCopyNodes struct {
	// Lacking are those that don't have the profile: a pod that names it does not start there. Usable are
	// those on which a launcher with it has userfaultfd.
	Lacking, Usable labels.Selector
}

// NodesForPostCopy returns what is to be asked of the nodes before a target pod is given userfaultfd: it is where none
// lacks the profile, and one can use it at least (decision 363). The VMI's affinity is not in the selectors, so more
// nodes than the pod may come to must have the profile. It fails for labels that no node can have.
func NodesForPostCopy(pod *corev1.Pod) (PostCopyNodes, error) {
	may, wrong := labels.ValidatedSelectorFromSet(pod.Spec.NodeSelector)
	lacks, ofLacks := labels.NewRequirement(layout.PostCopyLabel, selection.DoesNotExist, nil)
	uses, ofUses := labels.NewRequirement(layout.PostCopyLabel, selection.Equals, []string{layout.PostCopyUsable})
	if err := errors.Join(wrong, ofLacks, ofUses); err != nil {
		return PostCopyNodes{}, fmt.Errorf("selecting the nodes that the pod may come to: %w", err)
	}
	return PostCopyNodes{Lacking: may.Add(*lacks), Usable: may.Add(*uses)}, nil
}

// LetPostCopy gives a target pod the profile with which QEMU may call userfaultfd. The pod comes to no node without
// that, and rather to one where the kernel lets QEMU have it.
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
		// The pod's own profile stays: it is for what else the runtime starts in it.
		if c := &pod.Spec.Containers[i]; c.Name == layout.ComputeContainer {
			c.SecurityContext.SeccompProfile = &corev1.SeccompProfile{
				Type: corev1.SeccompProfileTypeLocalhost, LocalhostProfile: new(layout.LauncherSeccompProfile),
			}
		}
	}
	return nil
}
