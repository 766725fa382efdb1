package deploy

import (
	"strings"
	"testing"

	"drydock.dev/local/internal/manifest"
)

func TestAnObjectWorksWhenItsOwnStatusSaysSo(t *testing.T) {
	const deployment = "{apiVersion: apps/v1, kind: Deployment, metadata: {name: a, generation: 2}, spec: {replicas: 1}, "
	for name, c := range map[string]struct {
		text  string
		works bool
		why   string
	}{
		"a Deployment whose status is about an older generation": {
			deployment + "status: {observedGeneration: 1, replicas: 1, updatedReplicas: 1, availableReplicas: 1}}", false, "spec update to be observed"},
		"a Deployment with its new pod still missing": {
			deployment + "status: {observedGeneration: 2, replicas: 1}}", false, "0 out of 1 new replicas"},
		"a Deployment that is rolled out": {
			deployment + "status: {observedGeneration: 2, replicas: 1, updatedReplicas: 1, availableReplicas: 1}}", true, "successfully rolled out"},
		"a VM without a status": {
			"{apiVersion: kubevirt.io/v1, kind: VirtualMachine, metadata: {name: a}}", false, "condition Ready is not True"},
		"a VM that says why it is not ready": {
			"{apiVersion: kubevirt.io/v1, kind: VirtualMachine, metadata: {name: a}, status: {conditions: [{type: Ready, status: 'False', message: no disk}, {type: Failure, status: 'True', message: no name}]}}",
			false, "Ready is False: no disk; Failure is True: no name"},
		"a VM that is ready": {
			"{apiVersion: kubevirt.io/v1, kind: VirtualMachine, metadata: {name: a}, status: {conditions: [{type: Ready, status: 'True'}]}}", true, ""},
		"a definition that is served": {
			"{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: a}, status: {conditions: [{type: Established, status: 'True'}]}}", true, ""},
		"an object whose conditions are no list": {
			"{apiVersion: kubevirt.io/v1, kind: KubeVirt, metadata: {name: a}, status: {conditions: x}}", false, "can't be read"},
	} {
		t.Run(name, func(t *testing.T) {
			objects, err := manifest.Parse(c.text)
			if err != nil {
				t.Fatal(err)
			}
			if !hasState(objects[0]) {
				t.Error("nobody waits for it")
			}
			works, why, err := State(objects[0])
			if err != nil {
				t.Fatal(err)
			}
			if works != c.works || !strings.Contains(why, c.why) {
				t.Errorf("works is %v because %q; wanted %v because %q", works, why, c.works, c.why)
			}
		})
	}
}

func TestNobodyWaitsForWhatHasNoState(t *testing.T) {
	objects, err := manifest.Parse("{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}")
	if err != nil {
		t.Fatal(err)
	}
	if hasState(objects[0]) {
		t.Error("a ConfigMap never begins to work")
	}
}
