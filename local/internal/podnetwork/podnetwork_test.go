package podnetwork

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// node is a node's configuration, without the additions for each call.
const node = `"type":"drydock-cni","multusProgram":"/programs/multus",
	"own":{"type":"bridge","bridge":"cni0","mtu":1400},
	"multus":{"type":"multus","kubeconfig":"/config/kubelet.kubeconfig"}`

func TestWhoConnectsAPod(t *testing.T) {
	const named = `"cniVersion":"1.0.0","name":"drydock"`
	const own = `{"type":"bridge","bridge":"cni0","mtu":1400,` + named + `}`
	const multus = `{"type":"multus","kubeconfig":"/config/kubelet.kubeconfig",` + named + `,"delegates":[` + own + `]}`
	for given, test := range map[string]struct{ added, program, config string }{
		"a pod without annotations: the node's own plugin":          {``, "bridge", own},
		"a pod with other annotations: the node's own plugin":       {annotated("example.com/networks", "red"), "bridge", own},
		"an annotation that is empty asks for nothing":              {annotated("k8s.v1.cni.cncf.io/networks", ""), "bridge", own},
		"a status that claims networks asks for nothing":            {annotated("k8s.v1.cni.cncf.io/network-status", "red"), "bridge", own},
		"a pod that asks for networks: Multus with the node's own":  {annotated("k8s.v1.cni.cncf.io/networks", "red"), "/programs/multus", multus},
		"a pod that asks for another network in place of the pods'": {annotated("v1.multus-cni.io/default-network", "red"), "/programs/multus", multus},
		"the node's own plugin is told what the pod was given": {
			`,"prevResult":{"cniVersion":"1.0.0"}`, "bridge", strings.TrimSuffix(own, "}") + `,"prevResult":{"cniVersion":"1.0.0"}}`,
		},
		"Multus remembers by itself what the pod was given": {
			annotated("k8s.v1.cni.cncf.io/networks", "red") + `,"prevResult":{"cniVersion":"1.0.0"}`, "/programs/multus", multus,
		},
	} {
		t.Run(given, func(t *testing.T) {
			got, err := Choose([]byte("{" + node + "," + named + test.added + "}"))
			if err != nil {
				t.Fatal(err)
			}
			if got.Program != test.program || !reflect.DeepEqual(parsed(t, got.Config), parsed(t, []byte(test.config))) {
				t.Errorf("it is %s with %s, want %s with %s", got.Program, got.Config, test.program, test.config)
			}
		})
	}
}

func annotated(name, value string) string {
	return `,"runtimeConfig":{"io.kubernetes.cri.pod-annotations":{"` + name + `":"` + value + `"}}`
}

func parsed(t *testing.T, text []byte) (value any) {
	t.Helper()
	if err := json.Unmarshal(text, &value); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return value
}

func TestConfigurationsThatNameNoPluginAreRefused(t *testing.T) {
	for configuration, want := range map[string]string{
		`{`:                        "reading the configuration of drydock-cni: unexpected end of JSON input",
		`{}`:                       "it does not name the node's own plugin",
		`{"own":{"type":""}}`:      "it does not name the node's own plugin",
		`{"own":{"type":["a"]}}`:   "it does not name the node's own plugin",
		`{"runtimeConfig":"none"}`: "reading the configuration of drydock-cni",
	} {
		if got, err := Choose([]byte(configuration)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v, want %s", configuration, got, err, want)
		}
	}
}
