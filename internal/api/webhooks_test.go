package api

import (
	"bytes"
	"context"
	"encoding/json"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	v1 "kubevirt.io/api/core/v1"
	instancetypev1 "kubevirt.io/api/instancetype/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/yaml"

	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
	"drydock.dev/drydock/internal/rules/vmi/starttrace"
)

// authorizer gives the same answer to every question about a right.
type authorizer struct {
	client.Client
	allowed bool
}

func (a authorizer) Create(_ context.Context, object client.Object, _ ...client.CreateOption) error {
	object.(*authorizationv1.SubjectAccessReview).Status.Allowed = a.allowed
	return nil
}

const vmThatClones = `{"apiVersion":"kubevirt.io/v1","kind":"VirtualMachine","metadata":{"name":"vm","namespace":"mine"},"spec":{
	"runStrategy":"Halted",
	"dataVolumeTemplates":[{"metadata":{"name":"disk"},"spec":{"source":{"pvc":{"namespace":"theirs","name":"secret"}},"storage":{}}}],
	"template":{"spec":{"domain":{"memory":{"guest":"64Mi"},"devices":{}},"volumes":[{"name":"disk","dataVolume":{"name":"disk"}}]}}}}`

// CDI judges the creator of DataVolumes, which for a VM's templates is virt-controller. So virt-api must ask for the
// right.
func TestTheRightToCloneIsAskedWhoeverServesDataVolumes(t *testing.T) {
	for name, c := range map[string]struct {
		cdi     corev1.ConditionStatus
		allowed bool
	}{
		"Drydock serves, without the right": {corev1.ConditionTrue, false},
		"Drydock serves, with the right":    {corev1.ConditionTrue, true},
		"CDI serves, without the right":     {corev1.ConditionFalse, false},
		"CDI serves, with the right":        {corev1.ConditionFalse, true},
	} {
		t.Run(name, func(t *testing.T) {
			settings := &clusterconfig.Current{}
			settings.Set(&v1.KubeVirt{Status: v1.KubeVirtStatus{Conditions: []v1.KubeVirtCondition{
				{Type: clusterconfig.ConditionDataVolumes, Status: c.cdi},
			}}})
			served, err := webhooks(settings, authorizer{allowed: c.allowed}, nil)
			must(t, err)
			response := ask(t, served[validateVM], vmThatClones)
			if response.Allowed != c.allowed {
				t.Fatalf("the answer is %+v", response)
			}
			if !c.allowed && !strings.Contains(response.Result.Message, "you may not create datavolumes/source in namespace theirs") {
				t.Errorf("refused with %q", response.Result.Message)
			}
		})
	}
}

// A VM has errors and an unauthorized clone: both must be in the refusal.
func TestAMissingRightToCloneIsToldWithTheOtherFaults(t *testing.T) {
	served, err := webhooks(&clusterconfig.Current{}, authorizer{}, nil)
	must(t, err)
	wrong := strings.Replace(vmThatClones, `"runStrategy":"Halted",`, "", 1)
	response := ask(t, served[validateVM], wrong)
	for _, fault := range []string{"one of Running or RunStrategy must be specified", "you may not create datavolumes/source in namespace theirs"} {
		if response.Allowed || !strings.Contains(response.Result.Message, fault) {
			t.Errorf("the answer is %+v, want %q in it", response, fault)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A span has the UID by which all others of the VMI's trace are found, and there is one only for a VMI that will exist.
func TestANewVMIsAdmissionIsTraced(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*admissionv1.AdmissionRequest)
		want   bool
	}{
		"a new VMI": {func(*admissionv1.AdmissionRequest) {}, true},
		"a dry run": {func(r *admissionv1.AdmissionRequest) { r.DryRun = new(true) }, false},
		"an update": {func(r *admissionv1.AdmissionRequest) { r.Operation, r.OldObject = admissionv1.Update, r.Object }, false},
		"a bad VMI": {func(r *admissionv1.AdmissionRequest) { r.Object.Raw = []byte(`{"metadata":{"name":"web"},"spec":{}}`) }, false},
	} {
		var spans []starttrace.Span
		served, err := webhooks(&clusterconfig.Current{}, authorizer{}, func(sent []starttrace.Span) { spans = append(spans, sent...) })
		must(t, err)
		const vmi = `{"metadata":{"name":"web","namespace":"shop","uid":"5d307ca9-b3ef-428c-8861-06e72d69f223"},
			"spec":{"domain":{"devices":{},"memory":{"guest":"64Mi"}}}}`
		asked := &admissionv1.AdmissionRequest{UID: "1", Namespace: "shop", Name: "web", Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: []byte(vmi)}}
		c.change(asked)
		begin := time.Now()
		response := askFor(t, served[validateVMI], asked)
		if (len(spans) == 1) != c.want || len(spans) > 1 {
			t.Fatalf("%s: %d spans; the answer is %+v", name, len(spans), response)
		}
		if !c.want {
			continue
		}
		s := spans[0]
		if s.TraceID != starttrace.TraceID("5d307ca9-b3ef-428c-8861-06e72d69f223") || s.Name != starttrace.Admission || s.Attributes[starttrace.NameKey] != "web" ||
			s.Begin.Before(begin) || s.End.Before(s.Begin) {
			t.Errorf("%s: the span is %+v", name, s)
		}
	}
}

// The creator of a type or a preference must get the same warnings about annotations as that of a VMI.
func TestWebhooksTellWhichAnnotationsHaveNoEffect(t *testing.T) {
	served, err := webhooks(&clusterconfig.Current{}, authorizer{}, nil)
	must(t, err)
	const told = "annotations[kubevirt.io/memfd] has no effect: nothing here needs a guest's memory to be a memfd"
	for path, object := range map[string]string{
		mutateVMI:                 `{"metadata":{"annotations":{"kubevirt.io/memfd":"false"}}}`,
		validateType:              `{"spec":{"cpu":{"guest":1},"memory":{"guest":"1Gi"},"annotations":{"kubevirt.io/memfd":"false"}}}`,
		validateClusterPreference: `{"spec":{"annotations":{"kubevirt.io/memfd":"false"}}}`,
	} {
		response := ask(t, served[path], object)
		if !response.Allowed || len(response.Warnings) != 1 || !strings.HasSuffix(response.Warnings[0], told) {
			t.Errorf("%s: allowed %v, warnings %q", path, response.Allowed, response.Warnings)
		}
	}
}

// TestAVMIsToldThatItsInstanceTypeHasNoMemory: as in KubeVirt, both are stored.
func TestAVMIsToldThatItsInstanceTypeHasNoMemory(t *testing.T) {
	scheme := runtime.NewScheme()
	must(t, v1.AddToScheme(scheme))
	must(t, instancetypev1.AddToScheme(scheme))
	const vm = `{"spec":{"runStrategy":"Halted","instancetype":{"name":"tiny","kind":"VirtualMachineInstancetype"},"template":{"spec":{"domain":{"devices":{}}}}}}`
	for memory, want := range map[string][]string{
		"0":    {"spec.instancetype: the memory of the instance type tiny is 0: no guest can start without memory"},
		"64Mi": nil,
	} {
		kind := &instancetypev1.VirtualMachineInstancetype{ObjectMeta: metav1.ObjectMeta{Namespace: "mine", Name: "tiny"}}
		kind.Spec.CPU.Guest, kind.Spec.Memory.Guest = 1, resource.MustParse(memory)
		served, err := webhooks(&clusterconfig.Current{}, fake.NewClientBuilder().WithScheme(scheme).WithObjects(kind).Build(), nil)
		must(t, err)
		response := ask(t, served[validateVM], vm)
		if !response.Allowed || !slices.Equal(response.Warnings, want) {
			t.Errorf("a type with memory %s: allowed %v, warnings %q, want %q: %v", memory, response.Allowed, response.Warnings, want, response.Result)
		}
	}
}

// TestACDIObjectIsToldWhatOfItHasNoEffect, and nothing of it may be refused; where CDI is installed, CDI judges it.
func TestACDIObjectIsToldWhatOfItHasNoEffect(t *testing.T) {
	settings := &clusterconfig.Current{}
	served, err := webhooks(settings, authorizer{}, nil)
	must(t, err)
	const object = `{"metadata":{"name":"cdi"},"spec":{"imagePullPolicy":"IfNotPresent","config":{
		"featureGates":["HonorWaitForFirstConsumer"],"preallocation":true,"scratchSpaceStorageClass":"fast","filesystemOverhead":{"global":"0.1"}}}}`
	response := ask(t, served[validateCDI], object)
	want := []string{
		"spec.imagePullPolicy has no effect: no component of CDI is installed; the KubeVirt object's imagePullPolicy is that of Drydock's",
		"spec.config.scratchSpaceStorageClass has no effect: images become disks without scratch space",
	}
	if !response.Allowed || !slices.Equal(response.Warnings, want) {
		t.Errorf("allowed %v, warnings %q, want %q", response.Allowed, response.Warnings, want)
	}
	settings.Set(&v1.KubeVirt{Status: v1.KubeVirtStatus{Conditions: []v1.KubeVirtCondition{
		{Type: clusterconfig.ConditionDataVolumes, Status: corev1.ConditionFalse},
	}}})
	if response := ask(t, served[validateCDI], object); !response.Allowed || len(response.Warnings) > 0 {
		t.Errorf("where CDI is installed: allowed %v, warnings %q", response.Allowed, response.Warnings)
	}
}

// ask calls a webhook for an object that a tenant creates.
func ask(t *testing.T, webhook http.Handler, object string) *admissionv1.AdmissionResponse {
	t.Helper()
	return askFor(t, webhook, &admissionv1.AdmissionRequest{
		UID: "1", Namespace: "mine", Name: "vm", Operation: admissionv1.Create,
		UserInfo: authenticationv1.UserInfo{Username: "tenant"}, Object: runtime.RawExtension{Raw: []byte(object)},
	})
}

// askFor calls a webhook with a request.
func askFor(t *testing.T, webhook http.Handler, asked *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	t.Helper()
	body, err := json.Marshal(admissionv1.AdmissionReview{Request: asked})
	must(t, err)
	request := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(body))
	request.Header.Set("Content-Type", "application/json")
	answer := httptest.NewRecorder()
	webhook.ServeHTTP(answer, request)
	var review admissionv1.AdmissionReview
	must(t, json.Unmarshal(answer.Body.Bytes(), &review))
	if review.Response == nil {
		t.Fatalf("the answer is %s", answer.Body)
	}
	return review.Response
}

// The rules compare disks, volumes and interfaces pairwise: no webhook may get an object with more than its bound.
func TestEveryWebhookBoundsWhatItJudges(t *testing.T) {
	served, err := webhooks(&clusterconfig.Current{}, authorizer{}, nil)
	must(t, err)
	for path, hook := range served {
		for at, object := range map[string]string{
			"spec.template.spec.domain.devices.disks": `{"spec":{"template":{"spec":{"domain":{"devices":{"disks":%s}}}}}}`,
			"spec.networks":            `{"spec":{"networks":%s}}`,
			"spec.dataVolumeTemplates": `{"spec":{"dataVolumeTemplates":%s}}`,
		} {
			many := "[" + strings.Repeat(`{"name":"a"},`, 4_000) + `{"name":"a"}]`
			response := ask(t, hook, strings.Replace(object, "%s", many, 1))
			if want := at + ": Too many: must have at most 256 items"; response.Allowed || response.Result.Message != want {
				t.Errorf("%s: allowed %v, %+v", path, response.Allowed, response.Result)
			}
		}
		huge := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(`{"request":{"name":"`+strings.Repeat("a", 8<<20)+`"}}`))
		huge.Header.Set("Content-Type", "application/json")
		answer := httptest.NewRecorder()
		if hook.ServeHTTP(answer, huge); !strings.Contains(answer.Body.String(), "request entity is too large") {
			t.Errorf("%s: a body of 8 MiB is answered %.200s", path, answer.Body)
		}
	}
}

// Only kube-apiserver's aggregation layer proves a caller, and a webhook that is missing in the manifests is never
// called.
func TestEveryWebhookIsCalledThroughTheAggregationLayer(t *testing.T) {
	served, err := webhooks(&clusterconfig.Current{}, authorizer{}, nil)
	must(t, err)
	registered := map[string]bool{}
	for _, file := range yamlFiles(t, "../../config") {
		for _, hook := range webhooksIn(t, file) {
			service := hook.ClientConfig.Service
			if service == nil || service.Namespace != "default" || service.Name != "kubernetes" || service.Port != nil || len(hook.ClientConfig.CABundle) > 0 {
				t.Errorf("%s: webhook %s is called at %+v", file, hook.Name, hook.ClientConfig)
				continue
			}
			path, ours := strings.CutPrefix(*service.Path, webhookPath(""))
			if _, known := served[path]; !ours || !known {
				t.Errorf("%s: webhook %s has the path %s, which nobody serves", file, hook.Name, *service.Path)
			}
			registered[path] = true
		}
	}
	for path := range served {
		if !registered[path] {
			t.Errorf("%s is served, and no manifest registers it", path)
		}
	}
}

func yamlFiles(t *testing.T, folder string) []string {
	t.Helper()
	var files []string
	must(t, filepath.WalkDir(folder, func(path string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(path, ".yaml") {
			files = append(files, path)
		}
		return err
	}))
	return files
}

func webhooksIn(t *testing.T, file string) []admissionregistrationv1.ValidatingWebhook {
	t.Helper()
	text, err := os.ReadFile(file)
	must(t, err)
	var hooks []admissionregistrationv1.ValidatingWebhook
	for _, document := range strings.Split(string(text), "\n---\n") {
		// The fields that are read are the same in both kinds of configuration.
		var configuration admissionregistrationv1.ValidatingWebhookConfiguration
		if strings.Contains(document, "WebhookConfiguration") && yaml.Unmarshal([]byte(document), &configuration) == nil {
			hooks = append(hooks, configuration.Webhooks...)
		}
	}
	return hooks
}

// The API of the webhooks must answer only kube-apiserver, whatever rights others have.
func TestWebhooksAnswerKubeAPIServerAlone(t *testing.T) {
	api := webhookAPI(map[string]http.Handler{validateVM: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {})}, newRoom()).Handler()
	for name, want := range map[string]int{
		"": http.StatusForbidden, "system:anonymous": http.StatusForbidden, "admin": http.StatusForbidden,
		"system:serviceaccount:kubevirt:kubevirt-apiserver": http.StatusForbidden, user.APIServerUser: http.StatusOK,
	} {
		r := httptest.NewRequest(http.MethodPost, webhookPath(validateVM), nil)
		if name != "" {
			r = r.WithContext(request.WithUser(r.Context(), &user.DefaultInfo{Name: name, Groups: []string{user.SystemPrivilegedGroup}}))
		}
		answer := httptest.NewRecorder()
		if api.ServeHTTP(answer, r); answer.Code != want {
			t.Errorf("%q is answered %d: %s", name, answer.Code, answer.Body)
		}
	}
}
