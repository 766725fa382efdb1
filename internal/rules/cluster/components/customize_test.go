package components

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
)

// patched returns a KubeVirt object with patches.
func patched(patches ...v1.CustomizeComponentsPatch) *v1.KubeVirt {
	kv := &v1.KubeVirt{}
	kv.Spec.CustomizeComponents.Patches = patches
	return kv
}

func strategic(name, patch string) v1.CustomizeComponentsPatch {
	return v1.CustomizeComponentsPatch{ResourceName: name, ResourceType: kinds[name], Patch: patch, Type: v1.StrategicMergePatchType}
}

func TestPatchesChangeWhatThePodsNeed(t *testing.T) {
	memory := func(t corev1.PodTemplateSpec) string {
		return t.Spec.Containers[0].Resources.Requests.Memory().String()
	}
	for name, test := range map[string]struct {
		patch v1.CustomizeComponentsPatch
		got   func(*int32, corev1.PodTemplateSpec) string
		want  string
	}{
		"resources by a strategic patch": {
			patch: strategic(Handler, `{"spec":{"template":{"spec":{"containers":[{"name":"virt-handler","resources":{"requests":{"memory":"256Mi"}}}]}}}}`),
			got:   func(_ *int32, t corev1.PodTemplateSpec) string { return memory(t) }, want: "256Mi",
		},
		"resources by a JSON patch": {
			patch: v1.CustomizeComponentsPatch{ResourceName: API, ResourceType: "deployment", Type: v1.JSONPatchType,
				Patch: `[{"op":"replace","path":"/spec/template/spec/containers/0/resources/requests/memory","value":"1024Mi"}]`},
			got: func(_ *int32, t corev1.PodTemplateSpec) string { return memory(t) }, want: "1Gi",
		},
		"replicas by a merge patch": {
			patch: v1.CustomizeComponentsPatch{ResourceName: API, ResourceType: "Deployment", Type: v1.MergePatchType, Patch: `{"spec":{"replicas":4}}`},
			got:   func(replicas *int32, _ corev1.PodTemplateSpec) string { return fmt.Sprint(*replicas) }, want: "4",
		},
		"a variable of Go's": {
			patch: strategic(Controller, `{"spec":{"template":{"spec":{"containers":[{"name":"virt-controller","env":[{"name":"GOGC","value":"50"}]}]}}}}`),
			got: func(_ *int32, t corev1.PodTemplateSpec) string {
				env := t.Spec.Containers[0].Env
				return env[slices.IndexFunc(env, func(e corev1.EnvVar) bool { return e.Name == "GOGC" })].Value + fmt.Sprint(len(env))
			}, want: "503",
		},
		"a network of the pods' own": {
			patch: strategic(Handler, `{"spec":{"template":{"metadata":{"annotations":{"k8s.v1.cni.cncf.io/networks":"n@migration0"}}}}}`),
			got:   func(_ *int32, t corev1.PodTemplateSpec) string { return t.Annotations["k8s.v1.cni.cncf.io/networks"] }, want: "n@migration0",
		},
		"a label more": {
			patch: strategic(Handler, `{"spec":{"template":{"metadata":{"labels":{"mine":"yes"}}}}}`),
			got:   func(_ *int32, t corev1.PodTemplateSpec) string { return t.Labels["mine"] }, want: "yes",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, test.patch.ResourceName)
			before := s.spec()
			s.follow(patched(test.patch))
			replicas, template := s.workload()
			if got := test.got(replicas, template); got != test.want {
				t.Errorf("it is %q, want %q", got, test.want)
			}
			s.follow(nil)
			if diff := cmp.Diff(before, s.spec()); diff != "" {
				t.Errorf("it is not as it was: %s", diff)
			}
		})
	}
}

// The right to write the KubeVirt object must give no rights on nodes or in the cluster. rights has patches of virt-api
// that would give rights to their author, or remove something that guests and users need.
func rights() map[string]string {
	container := func(fields string) string {
		return `{"spec":{"template":{"spec":{"containers":[{"name":"virt-api",` + fields + `}]}}}}`
	}
	return map[string]string{
		"another service account":    `{"spec":{"template":{"spec":{"serviceAccountName":"kubevirt-handler"}}}}`,
		"the processes of the node":  `{"spec":{"template":{"spec":{"hostPID":true}}}}`,
		"the network of the node":    `{"spec":{"template":{"spec":{"hostNetwork":true}}}}`,
		"a folder of the node":       `{"spec":{"template":{"spec":{"volumes":[{"name":"x","hostPath":{"path":"/"}}]}}}}`,
		"another user":               `{"spec":{"template":{"spec":{"securityContext":{"runAsUser":0}}}}}`,
		"another runtime":            `{"spec":{"template":{"spec":{"runtimeClassName":"x"}}}}`,
		"a node":                     `{"spec":{"template":{"spec":{"nodeName":"x"}}}}`,
		"names":                      `{"spec":{"template":{"spec":{"hostAliases":[{"ip":"1.2.3.4","hostnames":["a"]}]}}}}`,
		"another server of names":    `{"spec":{"template":{"spec":{"dnsPolicy":"None"}}}}`,
		"more rights in a container": container(`"securityContext":{"privileged":true}`),
		"another image":              container(`"image":"example.com/mine:1"`),
		"another command":            container(`"command":["sh"]`),
		"arguments":                  container(`"args":["--namespace=x"]`),
		"an address of the API":      container(`"env":[{"name":"KUBERNETES_SERVICE_HOST","value":"1.2.3.4"}]`),
		"a variable of another kind": container(`"env":[{"name":"GOGC","valueFrom":{"secretKeyRef":{"name":"a","key":"b"}}}]`),
		"the variables of a Secret":  container(`"envFrom":[{"secretRef":{"name":"a"}}]`),
		"a probe that always passes": container(`"readinessProbe":{"exec":{"command":["true"]}}`),
		"a hook":                     container(`"lifecycle":{"postStart":{"exec":{"command":["sh"]}}}`),
		"another mount":              container(`"volumeMounts":[{"name":"tmp","mountPath":"/etc"}]`),
		"another container":          `{"spec":{"template":{"spec":{"containers":[{"name":"x","image":"example.com/mine:1"}]}}}}`,
		"another init container":     `{"spec":{"template":{"spec":{"initContainers":[{"name":"x","image":"example.com/mine:1"}]}}}}`,
		"another label":              `{"spec":{"template":{"metadata":{"labels":{"kubevirt.io":"x"}}}}}`,
		"another selector":           `{"spec":{"selector":{"matchLabels":{"x":"y"}}}}`,
		"pods that go at once":       `{"spec":{"strategy":{"type":"Recreate","rollingUpdate":null}}}`,
		"no pods":                    `{"spec":{"replicas":0}}`,
	}
}

func TestPatchesGiveNoRights(t *testing.T) {
	patches := rights()
	maps.Copy(patches, map[string]string{
		"the record":                 `{"metadata":{"annotations":{"` + ReplacedAnnotation + `":"{}"}}}`,
		"less than the manifest":     `{"spec":{"template":{"spec":{"containers":[{"name":"virt-api","resources":{"requests":null}}]}}}}`,
		"a field that is misspelled": `{"spec":{"replica":3}}`,
		"no object":                  `[]`,
	})
	for name, patch := range patches {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, API)
			plan, err := s.plan(patched(strategic(API, patch)))
			if err == nil {
				t.Errorf("it is applied: %v", plan)
			} else {
				t.Log(err)
			}
		})
	}
}

func TestPatchesAreBounded(t *testing.T) {
	for name, patch := range map[string]v1.CustomizeComponentsPatch{
		"one of great size": {Type: v1.MergePatchType, Patch: `{"metadata":{"annotations":{"a":"` + strings.Repeat("x", MaxPatchSize) + `"}}}`},
		"no patch":          {Type: v1.JSONPatchType, Patch: `{`},
		"no object":         {Type: v1.StrategicMergePatchType, Patch: `7`},
		"another type":      {Type: "apply", Patch: `{}`},
	} {
		patch.ResourceName, patch.ResourceType = API, "Deployment"
		if _, err := newServer(t, API).plan(patched(patch)); err == nil {
			t.Errorf("%s is applied", name)
		}
	}
	many := slices.Repeat([]v1.CustomizeComponentsPatch{strategic(API, `{"metadata":{"annotations":{"a":"b"}}}`)}, MaxPatches)
	s := newServer(t, API)
	s.follow(patched(append(many, strategic(API, `{"spec":{"replicas":7}}`))...))
	if replicas, _ := s.workload(); *replicas != 2 {
		t.Errorf("patch %d is applied", MaxPatches+1)
	}
}

func TestPatchesWithoutEffectAreLeftOut(t *testing.T) {
	other := strategic(API, `{"spec":{"replicas":7}}`)
	other.ResourceType = "DaemonSet"
	unknown := strategic(API, `{"spec":{"replicas":7}}`)
	unknown.ResourceName = "virt-operator"
	removes, copies := other, other
	removes.ResourceType, removes.Type, removes.Patch = "Deployment", v1.JSONPatchType, `[{"op":"remove","path":"/spec/template"}]`
	copies.ResourceType, copies.Type, copies.Patch = "Deployment", v1.JSONPatchType, `[{"op":"copy","from":"/spec","path":"/metadata/annotations"}]`
	for _, name := range all {
		if n := newServer(t, name).follow(patched(other, unknown, removes, copies)); n != 0 {
			t.Errorf("%s is written %d times", name, n)
		}
	}
	s := newServer(t, API)
	s.follow(patched(removes, strategic(API, `{"spec":{"replicas":7}}`)))
	if replicas, _ := s.workload(); *replicas != 7 {
		t.Error("a patch without effect keeps the next one from having its own")
	}
}

func TestAFormatOfLogsThatDoesNotExistReachesNoWorkload(t *testing.T) {
	kv := &v1.KubeVirt{}
	kv.Spec.CustomizeComponents.Flags = &v1.Flags{Handler: map[string]string{"log-format": "xml"}}
	want := `spec.customizeComponents.flags: "xml" is no format of logs: it must be text or json`
	if plan, err := newServer(t, Handler).plan(kv); plan != nil || err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("%v, %v, want %s", plan, err, want)
	}
	if plan, err := newServer(t, API).plan(kv); plan != nil || err != nil {
		t.Errorf("another workload: %v, %v", plan, err)
	}
}

func TestFlagsReplaceThoseOfTheManifest(t *testing.T) {
	kv := &v1.KubeVirt{}
	kv.Spec.CustomizeComponents.Flags = &v1.Flags{
		API:        map[string]string{"v": "9", "log-format": "json"},
		Controller: map[string]string{"max-attachment-pods": "3", "import-denied-networks": "10.0.0.0/8", "launcher-image": "example.com/mine:1", "namespace": "x", "log-format": "json"},
		Handler:    map[string]string{"kubelet-dir": "/", "pprof-addr": ":6060", "log-format": "json"},
	}
	for name, want := range map[string][]string{
		API:        {"--log-format=json"},
		Controller: {"--launcher-image=drydock.dev/virt-launcher:devel", "--importer-image=drydock.dev/virt-importer:devel", "--import-denied-networks=10.0.0.0/8", "--log-format=json", "--max-attachment-pods=3"},
		Handler:    {"--log-format=json", "--pprof-addr=:6060"},
	} {
		s := newServer(t, name)
		before := s.spec()
		s.follow(kv)
		_, template := s.workload()
		if diff := cmp.Diff(want, template.Spec.Containers[0].Args); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		for _, c := range template.Spec.InitContainers {
			if diff := cmp.Diff([]string{"--log-format=json"}, c.Args); diff != "" {
				t.Errorf("%s: container %s: %s", name, c.Name, diff)
			}
		}
		other := kv.DeepCopy()
		other.Spec.CustomizeComponents.Flags.Controller = map[string]string{"max-attachment-pods": "5"}
		s.follow(other)
		if _, template := s.workload(); name == Controller && template.Spec.Containers[0].Args[2] != "--max-attachment-pods=5" {
			t.Errorf("%s: %v", name, template.Spec.Containers[0].Args)
		}
		s.follow(nil)
		if diff := cmp.Diff(before, s.spec()); diff != "" {
			t.Errorf("%s is not as it was: %s", name, diff)
		}
	}
}
