package hotplug

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/controller/versioned"
	"drydock.dev/drydock/internal/rules/hotplug"
	"drydock.dev/drydock/internal/rules/pod/selinux"
)

// selinuxOptions returns the SELinux options of the VMI's attachment pods. No pod is created before they are known: another
// level would change the labels of the guest's volumes.
func (r *Reconciler) selinuxOptions(ctx context.Context, s *observation, attachmentPods []hotplug.AttachmentPod) (*corev1.SELinuxOptions, error) {
	enabled := false
	reported := s.vmi.Status.SelinuxContext
	if reported == "" || reported == selinux.None {
		node, err := versioned.Read[corev1.Node](ctx, r.Reader, "node", types.NamespacedName{Name: s.host.Spec.NodeName})
		if err != nil {
			return nil, err
		}
		enabled = node != nil && node.Labels[layout.SELinuxLabel] == layout.SELinuxEnabled
	}
	var launcher *corev1.SELinuxOptions
	if security := s.host.Spec.SecurityContext; security != nil {
		launcher = security.SELinuxOptions
	}
	options, err := selinux.AttachmentOptions(launcher, reported, enabled)
	if err == nil {
		return options, nil
	}
	// Before the guest runs this is expected: the node's report comes with the guest.
	if !errors.Is(err, selinux.ErrUnknown) || s.vmi.Status.Phase == v1.Running {
		for _, h := range attachmentPods {
			if r.memory.failed(client.ObjectKeyFromObject(s.vmi), h.Name, fmt.Sprintf("the attachment pod %s can't be made: %v", h.Name, err)) {
				r.Recorder.Eventf(s.vmi, nil, corev1.EventTypeWarning, reasonFailed, "CreatePod", "Error creating attachment pod %s: %v", h.Name, err)
			}
		}
	}
	return nil, fmt.Errorf("choosing the SELinux options of the attachment pods of VMI %s/%s: %w", s.vmi.Namespace, s.vmi.Name, err)
}
