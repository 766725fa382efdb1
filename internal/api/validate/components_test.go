package validate

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

func TestCustomizationsWithoutEffectAreTold(t *testing.T) {
	kv := &v1.KubeVirt{}
	manifest := `
spec:
  customizeComponents:
    patches:
      - {resourceName: virt-api, resourceType: deployment, type: merge, patch: '{"spec":{"replicas":3}}'}
      - {resourceName: virt-operator, resourceType: Deployment, type: merge, patch: '{}'}
      - {resourceName: virt-handler, resourceType: Deployment, type: merge, patch: '{}'}
      - {resourceName: virt-api, resourceType: Deployment, type: json, patch: '[{"op": "test", "path": "/kind", "value": "Deployment"}, {"op": "remove", "path": "/spec/template/spec/containers/0/livenessProbe"}]'}
    flags: {api: {v: "5"}, controller: {max-attachment-pods: "2", launcher-image: x}}
`
	if err := yaml.UnmarshalStrict([]byte(manifest), kv); err != nil {
		t.Fatal(err)
	}
	const others = " has no effect: it is for none of the deployments virt-api and virt-controller and the daemon set virt-handler"
	want := []string{
		"spec.customizeComponents.patches[1]" + others,
		"spec.customizeComponents.patches[2]" + others,
		"spec.customizeComponents.patches[3] has no effect: operation 2 is \"remove\"; add, replace and test are supported",
		"spec.customizeComponents.flags.api[v] has no effect: Drydock lets this object set no such flag of virt-api",
		"spec.customizeComponents.flags.controller[launcher-image] has no effect: Drydock lets this object set no such flag of virt-controller",
	}
	if diff := cmp.Diff(want, KubeVirtWarnings(kv, nil)); diff != "" {
		t.Error(diff)
	}
	if errs := KubeVirt(kv, nil); len(errs) > 0 {
		t.Errorf("it is refused: %v", errs)
	}
}

func TestATypeThatThePolicyOfPodsRefusesIsTold(t *testing.T) {
	for kind, want := range map[string]int{"": 0, "container_t": 0, "mine.process": 0, "mine_t": 1} {
		kv := &v1.KubeVirt{}
		kv.Spec.Configuration.SELinuxLauncherType = kind
		if got := KubeVirtWarnings(kv, nil); len(got) != want {
			t.Errorf("%q: %q", kind, got)
		}
	}
}
