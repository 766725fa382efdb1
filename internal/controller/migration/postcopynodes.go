package migration

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/logs"
	"drydock.dev/drydock/internal/rules/migration"
	"drydock.dev/drydock/internal/rules/pod/launcherpod"
)

// addUserfaultfd gives a target pod userfaultfd if the migration may need it and no possible node lacks the means for it
// (decision 363). Without it, a guest is stopped that could move before its memory.
func (r *Reconciler) addUserfaultfd(ctx context.Context, o *migration.Observed, source string, pod *corev1.Pod) error {
	configuration, err := r.configuration(ctx, o.VMI)
	if err != nil || !*configuration.AllowPostCopy {
		return err
	}
	nodes, err := launcherpod.NodesForPostCopy(pod)
	if err != nil {
		logs.VMI(ctrl.LoggerFrom(ctx), o.VMI).Info("the target pod is made without post-copy", "pod", pod.Name, "reason", err.Error())
		return nil
	}
	if lacking, err := r.anyNode(ctx, nodes.Lacking, source); err != nil || lacking {
		return err
	}
	if usable, err := r.anyNode(ctx, nodes.Usable, source); err != nil || !usable {
		return err
	}
	with := pod.DeepCopy()
	if err := launcherpod.LetPostCopy(with); err != nil {
		logs.VMI(ctrl.LoggerFrom(ctx), o.VMI).Info("the target pod is made without post-copy", "pod", pod.Name, "reason", err.Error())
		return nil
	}
	*pod = *with
	return nil
}

// anyNode asks about schedulable nodes other than the guest's.
func (r *Reconciler) anyNode(ctx context.Context, selected labels.Selector, source string) (bool, error) {
	var nodes corev1.NodeList
	err := r.Reader.List(ctx, &nodes, client.Limit(1), client.MatchingLabelsSelector{Selector: selected}, client.MatchingFieldsSelector{
		Selector: fields.AndSelectors(
			fields.OneTermNotEqualSelector(metav1.ObjectNameField, source),
			fields.OneTermEqualSelector("spec.unschedulable", "false"),
		),
	})
	if err != nil {
		return false, fmt.Errorf("listing the nodes that have what post-copy needs: %w", err)
	}
	return len(nodes.Items) > 0, nil
}
