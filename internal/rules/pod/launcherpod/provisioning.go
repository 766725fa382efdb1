package launcherpod

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/machine/stateclaim"
	"drydock.dev/drydock/internal/rules/storage/volumeclaim"
)

// HoldContainer is the provisioning pod's only container.
const HoldContainer = "hold"

// holdCommand makes virt-launcher wait for its end.
const holdCommand = "hold"

// neverReady keeps the pod, which has the VMI's labels for the scheduler, from becoming an endpoint of its Services.
const neverReady = "drydock.dev/provisioning-only"

// RenderProvisioning renders a pod that is only scheduled: to the scheduler it is the launcher pod, with all of the
// VMI's claims. Nothing is pulled, mounted or read. An unmounted claim is bound all the same; it can't be written to
// and does not delay the pod's end, so the deletion need not wait for the kubelet.
func RenderProvisioning(vmi *v1.VirtualMachineInstance, settings clusterconfig.Settings, launcherImage string, facts Facts) (*corev1.Pod, error) {
	resources, err := podResources(vmi, settings, facts)
	if err != nil {
		return nil, err
	}
	addConsoleLogRequests(&resources, &vmi.Spec)
	pod := &corev1.Pod{
		ObjectMeta: objectMeta(vmi),
		Spec: corev1.PodSpec{
			RestartPolicy:                 corev1.RestartPolicyNever,
			TerminationGracePeriodSeconds: new(int64(0)),
			AutomountServiceAccountToken:  new(false),
			EnableServiceLinks:            new(false),
			SecurityContext:               podSecurity(settings),
			ReadinessGates:                []corev1.PodReadinessGate{{ConditionType: neverReady}},
			Volumes:                       claimVolumes(vmi),
			Containers: []corev1.Container{{
				Name:            HoldContainer,
				Image:           launcherImage,
				ImagePullPolicy: settings.ImagePullPolicy,
				Command:         []string{layout.LauncherBinary, holdCommand},
				Args:            settings.LogFormat.Args(),
				Resources:       resources,
				SecurityContext: containerSecurity(),
			}},
		},
	}
	pod.APIVersion, pod.Kind = "v1", "Pod"
	pod.Name = ProvisioningName(vmi)
	// virt-handler finds a VMI's launcher pod by this label.
	delete(pod.Labels, v1.CreatedByLabel)
	pod.Annotations[v1.EphemeralProvisioningObject] = "true"
	pod.Annotations[defaultContainer] = HoldContainer
	delete(pod.Annotations, EvictOnlyAnnotation)
	Constrain(&pod.Spec, vmi, settings)
	return pod, nil
}

// RenderProvisioningFor renders the provisioning pod of a machine that does not start, for whose disks a maintenance
// pod, its owner, waits. It has all of the claims, also those that are hotplugged later or belong to the maintenance
// pod alone.
func RenderProvisioningFor(owner *corev1.Pod, claims []string, vmi *v1.VirtualMachineInstance, settings clusterconfig.Settings, launcherImage string, facts Facts) (*corev1.Pod, error) {
	pod, err := RenderProvisioning(vmi, settings, launcherImage, facts)
	if err != nil {
		return nil, err
	}
	pod.Name = ProvisioningNameFor(vmi.Name, owner.UID)
	pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner, podKind)}
	pod.Spec.Volumes = nil
	for i, claim := range claims {
		pod.Spec.Volumes = append(pod.Spec.Volumes, claimVolume(fmt.Sprintf("claim-%d", i), claim))
	}
	return pod, nil
}

var podKind = corev1.SchemeGroupVersion.WithKind("Pod")

// ProvisioningNameFor returns the name of a maintenance pod's provisioning pod.
func ProvisioningNameFor(machine string, owner types.UID) string {
	return ProvisioningName(&v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Name: machine, UID: owner}})
}

// ProvisionedFor returns the machine of a maintenance pod's provisioning pod, "" for another pod. It trusts the pod's
// metadata, so it may only be used to enqueue.
func ProvisionedFor(pod metav1.Object) string {
	owner := metav1.GetControllerOf(pod)
	if owner == nil || owner.Kind != podKind.Kind || pod.GetAnnotations()[v1.EphemeralProvisioningObject] == "" {
		return ""
	}
	return pod.GetAnnotations()[v1.DomainAnnotation]
}

func claimVolumes(vmi *v1.VirtualMachineInstance) []corev1.Volume {
	var out []corev1.Volume
	seen := map[string]bool{}
	for i := range vmi.Spec.Volumes {
		v := &vmi.Spec.Volumes[i]
		name := volumeclaim.Name(&v.VolumeSource)
		if name == "" || seen[name] || machine.Hotpluggable(v) {
			continue
		}
		seen[name] = true
		out = append(out, claimVolume(layout.PodVolume(v.Name), name))
	}
	if claim := stateclaim.ClaimName(vmi); claim != "" && !seen[claim] {
		out = append(out, claimVolume(layout.StateVolume, claim))
	}
	return out
}
