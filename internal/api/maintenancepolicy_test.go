package api

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/api/admission"
	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/contracts/maintenance"
	"drydock.dev/drydock/internal/policytest"
	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
	"drydock.dev/drydock/internal/rules/maintenance/maintenancepod"
)

// TestVirtAPIMakesMaintenancePodsAndNoOthers judges writes by config/rbac/maintenance-policy.yaml, with the API server's
// own code.
func TestVirtAPIMakesMaintenancePodsAndNoOthers(t *testing.T) {
	policy := policytest.Load(t, "../../config/rbac/maintenance-policy.yaml", "drydock-maintenance-pods")
	virtAPI := &user.DefaultInfo{Name: "system:serviceaccount:" + clusterconfig.Namespace + ":" + admission.APIServiceAccount}
	const foreign, more = "virt-api may create and delete only pods with the label", "virt-api may create only pods with claims"
	secret := corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s"}}
	for name, test := range map[string]struct {
		by      user.Info
		edit    func(*corev1.Pod)
		delete  bool
		refused string
	}{
		"its own":          {},
		"its own, deleted": {delete: true},
		"with a scratch folder": {edit: func(p *corev1.Pod) {
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "e", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
		}},
		"another's pod":           {edit: func(p *corev1.Pod) { p.Labels = nil }, refused: foreign},
		"another's pod, deleted":  {edit: func(p *corev1.Pod) { p.Labels = map[string]string{"a": "b"} }, delete: true, refused: foreign},
		"a user's, with anything": {by: &user.DefaultInfo{Name: "ann"}, edit: func(p *corev1.Pod) { p.Labels, p.Spec.HostNetwork = nil, true }},
		"with a Secret": {edit: func(p *corev1.Pod) {
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "s", VolumeSource: secret})
		}, refused: more},
		"with a token":               {edit: func(p *corev1.Pod) { p.Spec.AutomountServiceAccountToken = nil }, refused: more},
		"in the node's network":      {edit: func(p *corev1.Pod) { p.Spec.HostNetwork = true }, refused: more},
		"among the node's processes": {edit: func(p *corev1.Pod) { p.Spec.HostPID = true }, refused: more},
		"with the node's IPC":        {edit: func(p *corev1.Pod) { p.Spec.HostIPC = true }, refused: more},
		"privileged":                 {edit: func(p *corev1.Pod) { p.Spec.Containers[0].SecurityContext.Privileged = new(true) }, refused: more},
		"that may gain privileges":   {edit: func(p *corev1.Pod) { p.Spec.Containers[0].SecurityContext.AllowPrivilegeEscalation = nil }, refused: more},
		"without a security context": {edit: func(p *corev1.Pod) { p.Spec.Containers[0].SecurityContext = nil }, refused: more},
		"with one more container":    {edit: func(p *corev1.Pod) { p.Spec.InitContainers = p.Spec.Containers }, refused: more},
		"with a Secret in its environment": {edit: func(p *corev1.Pod) {
			p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{Key: "k"}}}}
		}, refused: more},
		"with Secrets in its environment": {edit: func(p *corev1.Pod) { p.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{Prefix: "A"}} }, refused: more},
	} {
		t.Run(name, func(t *testing.T) {
			pod := maintenancePod(t)
			if test.edit != nil {
				test.edit(pod)
			}
			write := policytest.Write{By: virtAPI, Resource: "pods", New: pod}
			if test.by != nil {
				write.By = test.by
			}
			if test.delete {
				write.Old, write.New = pod, nil
			}
			if got := policy.Answer(t, write); (got == "") != (test.refused == "") || !strings.HasPrefix(got, test.refused) {
				t.Errorf("answered %q", got)
			}
		})
	}
}

// maintenancePod is as virt-api makes it.
func maintenancePod(t *testing.T) *corev1.Pod {
	t.Helper()
	vm := &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: "db"}}
	vm.Spec.Template = &v1.VirtualMachineInstanceTemplateSpec{Spec: v1.VirtualMachineInstanceSpec{
		Volumes: []v1.Volume{{Name: "root", VolumeSource: v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: "db"}}}},
	}}
	pod, err := maintenancepod.Render(maintenancepod.Input{
		VM: vm, Request: &maintenance.Request{Interactive: true}, Image: layout.DevelGuestfsImage, Token: "t",
		Claims: map[string]*corev1.PersistentVolumeClaim{"db": {Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "pv"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return pod
}
