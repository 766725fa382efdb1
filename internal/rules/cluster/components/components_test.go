package components

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields/managedfieldstest"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/applyconfigurations"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	v1 "kubevirt.io/api/core/v1"
	sigyaml "sigs.k8s.io/yaml"
)

var types = applyconfigurations.NewTypeConverter(clientgoscheme.Scheme)

// server is the part of an API server that tracks the owners of fields.
type server struct {
	t      *testing.T
	fields managedfieldstest.TestFieldManager
	name   string
	kind   schema.GroupVersionKind
}

// manifest returns a workload from the project's manifests.
func manifest(t *testing.T, name string) *unstructured.Unstructured {
	t.Helper()
	files, err := filepath.Glob("../../../../config/deploy/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
		for {
			object := &unstructured.Unstructured{}
			if err := decoder.Decode(object); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			if object.GetName() == name && (object.GetKind() == "Deployment" || object.GetKind() == "DaemonSet") {
				return object
			}
		}
	}
	t.Fatalf("no manifest has the workload %s", name)
	return nil
}

// newServer has a workload that kubectl has applied.
func newServer(t *testing.T, name string) *server {
	t.Helper()
	object := manifest(t, name)
	s := &server{t: t, name: name, kind: object.GroupVersionKind()}
	s.fields = managedfieldstest.NewTestFieldManager(types, s.kind)
	s.kubectl(object)
	return s
}

// kubectl applies a manifest, as `kubectl apply --server-side --force-conflicts` does.
func (s *server) kubectl(object *unstructured.Unstructured) {
	s.t.Helper()
	if err := s.fields.Apply(object.DeepCopy(), "kubectl", true); err != nil {
		s.t.Fatalf("applying the manifest of %s: %v", s.name, err)
	}
}

func (s *server) plan(kv *v1.KubeVirt) (*unstructured.Unstructured, error) {
	live := s.fields.Live()
	if s.kind.Kind == "Deployment" {
		d := &appsv1.Deployment{}
		s.decode(live, d)
		return Deployment(d, kv, types)
	}
	d := &appsv1.DaemonSet{}
	s.decode(live, d)
	return DaemonSet(d, kv, types)
}

func (s *server) decode(live runtime.Object, into runtime.Object) {
	s.t.Helper()
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(live)
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(fields, into)
	}
	if err != nil {
		s.t.Fatalf("reading %s: %v", s.name, err)
	}
}

// follow applies plans until there is none, and returns their number.
func (s *server) follow(kv *v1.KubeVirt) int {
	s.t.Helper()
	for n := range 4 {
		plan, err := s.plan(kv)
		if err != nil {
			s.t.Fatalf("the plan for %s: %v", s.name, err)
		}
		if plan == nil {
			return n
		}
		before := s.live()
		if err := s.fields.Apply(plan, Manager, true); err != nil {
			s.t.Fatalf("applying the plan for %s: %v", s.name, err)
		}
		if said := s.judged(before, s.live()); said != "" {
			s.t.Fatalf("the policy refuses the plan for %s: %s", s.name, said)
		}
	}
	s.t.Fatalf("the plans for %s never end", s.name)
	return 0
}

// workload returns the present workload.
func (s *server) workload() (replicas *int32, template corev1.PodTemplateSpec) {
	s.t.Helper()
	d := &appsv1.Deployment{}
	s.decode(s.fields.Live(), d)
	return d.Spec.Replicas, d.Spec.Template
}

// spec returns the workload's spec as text.
func (s *server) spec() string {
	s.t.Helper()
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(s.fields.Live())
	if err != nil {
		s.t.Fatal(err)
	}
	text, err := sigyaml.Marshal(fields["spec"])
	if err != nil {
		s.t.Fatal(err)
	}
	return string(text)
}

// mine returns the fields that Manager owns.
func (s *server) mine() string {
	for _, entry := range s.fields.ManagedFields() {
		if entry.Manager == Manager {
			return entry.FieldsV1.String()
		}
	}
	return ""
}

func kubeVirt(t *testing.T, spec string) *v1.KubeVirt {
	t.Helper()
	kv := &v1.KubeVirt{}
	if err := sigyaml.UnmarshalStrict([]byte(spec), &kv.Spec); err != nil {
		t.Fatal(err)
	}
	return kv
}

const placed = `
imagePullPolicy: Always
imagePullSecrets: [{name: registry}]
infra:
  replicas: 3
  nodePlacement:
    nodeSelector: {node-role.kubernetes.io/control-plane: ""}
    tolerations: [{key: control-plane, operator: Exists}]
    affinity:
      nodeAffinity:
        requiredDuringSchedulingIgnoredDuringExecution:
          nodeSelectorTerms: [{matchExpressions: [{key: zone, operator: In, values: [a, b]}]}]
      podAntiAffinity:
        preferredDuringSchedulingIgnoredDuringExecution:
          - {weight: 1, podAffinityTerm: {topologyKey: zone, labelSelector: {matchLabels: {kubevirt.io: virt-api}}}}
workloads:
  nodePlacement:
    nodeSelector: {guests: "yes"}
    tolerations: [{key: guests, operator: Exists}]
`

var all = []string{API, Controller, Handler}

func TestTheKubeVirtObjectPlacesTheWorkloads(t *testing.T) {
	kv := kubeVirt(t, placed)
	for _, name := range all {
		s := newServer(t, name)
		if n := s.follow(kv); n != 1 {
			t.Errorf("%s: %d writes, want 1", name, n)
		}
		replicas, template := s.workload()
		selector, tolerations, wantReplicas := map[string]string{"node-role.kubernetes.io/control-plane": ""}, 2, int32(3)
		if name == Handler {
			selector, wantReplicas = map[string]string{"guests": "yes"}, 0
		}
		if diff := cmp.Diff(selector, template.Spec.NodeSelector); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if len(template.Spec.Tolerations) != tolerations {
			t.Errorf("%s tolerates %v", name, template.Spec.Tolerations)
		}
		if wantReplicas > 0 && (replicas == nil || *replicas != wantReplicas) {
			t.Errorf("%s has %v replicas", name, replicas)
		}
		for _, c := range append(template.Spec.InitContainers, template.Spec.Containers...) {
			if c.ImagePullPolicy != corev1.PullAlways {
				t.Errorf("%s: container %s has the policy %s", name, c.Name, c.ImagePullPolicy)
			}
		}
		if diff := cmp.Diff([]corev1.LocalObjectReference{{Name: "registry"}}, template.Spec.ImagePullSecrets); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if anti := template.Spec.Affinity; name != Handler && len(anti.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution) != 2 {
			t.Errorf("%s: what the manifest says of other pods does not hold any more: %+v", name, anti.PodAntiAffinity)
		}
	}
}

func TestWhatTheKubeVirtObjectSaysNoMoreIsAsTheManifestsHaveIt(t *testing.T) {
	for _, kv := range []*v1.KubeVirt{nil, {}} {
		for _, name := range all {
			s := newServer(t, name)
			before := s.spec()
			s.follow(kubeVirt(t, placed))
			if s.spec() == before {
				t.Fatalf("%s: nothing has changed", name)
			}
			s.follow(kv)
			if diff := cmp.Diff(before, s.spec()); diff != "" {
				t.Errorf("%s is not as it was: %s", name, diff)
			}
			// Applying the same manifest again takes over the fields that were given back.
			s.kubectl(manifest(t, name))
			s.follow(kv)
			if diff := cmp.Diff(before, s.spec()); diff != "" || s.mine() != "" {
				t.Errorf("%s is not the manifest's: %s; fields %s", name, diff, s.mine())
			}
		}
	}
}

func TestNothingIsOwnedWithoutAWord(t *testing.T) {
	for _, name := range all {
		for _, kv := range []*v1.KubeVirt{nil, {}} {
			if n := newServer(t, name).follow(kv); n != 0 {
				t.Errorf("%s: %d writes, though the KubeVirt object says nothing", name, n)
			}
		}
	}
}

func TestANewerReleaseIsNotFought(t *testing.T) {
	s := newServer(t, API)
	kv := kubeVirt(t, placed)
	s.follow(kv)
	newer := manifest(t, API)
	must(t, unstructured.SetNestedField(newer.Object, int64(5), "spec", "replicas"))
	must(t, unstructured.SetNestedSlice(newer.Object, []any{map[string]any{"key": "newer", "operator": "Exists"}}, "spec", "template", "spec", "tolerations"))
	must(t, unstructured.SetNestedField(newer.Object, "node", "spec", "template", "spec", "nodeSelector", "newer"))
	s.kubectl(newer)
	if n := s.follow(kv); n != 1 {
		t.Errorf("%d writes after a newer release, want 1", n)
	}
	replicas, template := s.workload()
	if *replicas != 3 || template.Spec.Tolerations[0].Key != "newer" || len(template.Spec.Tolerations) != 2 || len(template.Spec.NodeSelector) != 2 {
		t.Errorf("%d replicas, tolerations %v, nodes %v", *replicas, template.Spec.Tolerations, template.Spec.NodeSelector)
	}
	s.follow(nil)
	replicas, template = s.workload()
	if *replicas != 5 || len(template.Spec.Tolerations) != 1 || template.Spec.Tolerations[0].Key != "newer" || len(template.Spec.NodeSelector) != 1 {
		t.Errorf("given back are %d replicas, tolerations %v, nodes %v", *replicas, template.Spec.Tolerations, template.Spec.NodeSelector)
	}
}

func TestAnotherWordOfTheKubeVirtObjectReplacesTheFirst(t *testing.T) {
	s := newServer(t, Controller)
	before := s.spec()
	s.follow(kubeVirt(t, placed))
	s.follow(kubeVirt(t, "infra: {replicas: 1, nodePlacement: {nodeSelector: {other: node}}}"))
	replicas, template := s.workload()
	if *replicas != 1 || len(template.Spec.NodeSelector) != 1 || template.Spec.NodeSelector["other"] != "node" || len(template.Spec.Tolerations) != 1 ||
		len(template.Spec.ImagePullSecrets) != 0 || template.Spec.Containers[0].ImagePullPolicy != corev1.PullIfNotPresent {
		t.Errorf("%d replicas, template %+v", *replicas, template.Spec)
	}
	s.follow(nil)
	if diff := cmp.Diff(before, s.spec()); diff != "" {
		t.Errorf("it is not as it was: %s", diff)
	}
}

func TestThereIsAlwaysAPodThatFollowsTheKubeVirtObject(t *testing.T) {
	s := newServer(t, Controller)
	s.follow(kubeVirt(t, "infra: {replicas: 0}"))
	if replicas, _ := s.workload(); *replicas != 1 {
		t.Errorf("%d replicas", *replicas)
	}
}

func TestASpoiledRecordKeepsNobodyFromGoingOn(t *testing.T) {
	for _, text := range []string{"{", `{"spec":7}`, `{"unknown":true}`, `[]`} {
		s := newServer(t, API)
		kv := kubeVirt(t, placed)
		s.follow(kv)
		live := s.fields.Live()
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(live)
		must(t, err)
		object := &unstructured.Unstructured{Object: fields}
		must(t, unstructured.SetNestedField(object.Object, text, "metadata", "annotations", ReplacedAnnotation))
		must(t, s.fields.Update(object, "somebody"))
		s.follow(kv)
		if replicas, _ := s.workload(); *replicas != 3 {
			t.Errorf("%q: %d replicas", text, *replicas)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A component with too much memory must be restarted before its node is out of memory, whatever the KubeVirt object
// says of it, and must collect its garbage before that.
func TestEachComponentHasALimitOfMemory(t *testing.T) {
	for _, name := range []string{API, Controller, Handler} {
		s := newServer(t, name)
		for step, kv := range map[string]*v1.KubeVirt{
			"without a KubeVirt object": nil,
			"placed":                    kubeVirt(t, placed),
			"with other requests": kubeVirt(t, `
customizeComponents:
  patches:
  - {resourceName: `+name+`, resourceType: `+s.kind.Kind+`, type: strategic,
     patch: '{"spec":{"template":{"spec":{"containers":[{"name":"`+name+`","resources":{"requests":{"memory":"96Mi"}}}]}}}}'}
`),
		} {
			s.follow(kv)
			_, template := s.workload()
			for _, c := range template.Spec.Containers {
				limit := c.Resources.Limits.Memory()
				i := slices.IndexFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == "GOMEMLIMIT" })
				if limit.IsZero() || i < 0 {
					t.Errorf("%s %s: the limit is %v, the environment %v", name, step, limit, c.Env)
					continue
				}
				if soft := resource.MustParse(strings.TrimSuffix(c.Env[i].Value, "B")); soft.Cmp(*limit) >= 0 {
					t.Errorf("%s %s: GOMEMLIMIT is %s, the limit %v", name, step, c.Env[i].Value, limit)
				}
			}
		}
	}
}

// The kubelet warns of each failed probe: the first must wait until the component listens, and the second as long as
// a start may take.
func TestAComponentThatStartsIsNotWarnedOf(t *testing.T) {
	for _, name := range []string{API, Controller, Handler} {
		_, template := newServer(t, name).workload()
		for _, c := range template.Spec.Containers {
			i := slices.IndexFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.Name == "health" })
			want := []string{"virt", "await-port", strconv.Itoa(int(c.Ports[i].ContainerPort))}
			if p := c.StartupProbe; p == nil || p.Exec == nil || !slices.Equal(p.Exec.Command, want) || p.TimeoutSeconds < 30 {
				t.Errorf("%s: the startup probe is %+v", name, p)
			}
			for _, p := range []*corev1.Probe{c.ReadinessProbe, c.LivenessProbe} {
				if p == nil || p.HTTPGet == nil || p.HTTPGet.Port.String() != "health" {
					t.Errorf("%s: a probe is %+v", name, p)
				}
			}
			if c.ReadinessProbe.TimeoutSeconds < 30 {
				t.Errorf("%s: the readiness probe gives up after %d s", name, c.ReadinessProbe.TimeoutSeconds)
			}
		}
	}
}
