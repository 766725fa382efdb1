package upload

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	uploadv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/upload/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"drydock.dev/drydock/internal/certs/workertls"
	"drydock.dev/drydock/internal/certs/workertls/workertlstest"
	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/contracts/transfer"
	"drydock.dev/drydock/internal/importer/job"
	importerupload "drydock.dev/drydock/internal/importer/upload"
	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
	"drydock.dev/drydock/internal/rules/storage/datavolume"
)

// workerIP is an address of this machine on which nothing else listens.
const workerIP = "127.0.0.31"

var workerLabels = map[string]string{v1.AppLabel: datavolume.WorkerAppLabel}

// scene has a real worker and an in-memory cluster; internal/api tests the same against a real API server.
type scene struct {
	t       *testing.T
	cluster client.Client
	tokens  *Tokens
	server  *httptest.Server
	job     *job.Job
	proxy   *Proxy
	by      *workertls.Authority
	now     time.Time
}

func newScene(t *testing.T, objects ...client.Object) *scene {
	t.Helper()
	scheme := runtime.NewScheme()
	must(t, errors.Join(clientgoscheme.AddToScheme(scheme), cdiv1.AddToScheme(scheme), v1.AddToScheme(scheme)))
	s := &scene{t: t, by: workertlstest.Authority(t), now: time.Now()}
	s.cluster = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithObjects(
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: clusterconfig.Namespace, Name: KeysSecret}}).Build()
	identity, err := workertls.ClientConfig(workertlstest.Client(t, s.by, workertls.ProxyName), "")
	must(t, err)
	s.proxy = NewProxy(s.cluster, func(server string) *tls.Config {
		config := identity.Clone()
		config.ServerName = server
		return config
	})
	s.proxy.now = func() time.Time { return s.now }
	s.tokens = NewTokens(s.cluster)
	s.server = httptest.NewServer(s.proxy)
	t.Cleanup(s.server.Close)
	return s
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// claim makes a claim; its UID distinguishes it from others of its name.
func (s *scene) claim(uid types.UID, annotations map[string]string) *corev1.PersistentVolumeClaim {
	s.t.Helper()
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "disk", UID: uid, Annotations: annotations,
	}}
	must(s.t, s.cluster.Create(s.t.Context(), claim))
	return claim
}

// pod makes the worker's pod in a phase.
func (s *scene) pod(phase corev1.PodPhase) {
	s.t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: transfer.UploadName("disk"), Labels: workerLabels}}
	must(s.t, client.IgnoreNotFound(s.cluster.Delete(s.t.Context(), pod)))
	pod.ResourceVersion, pod.Status = "", corev1.PodStatus{Phase: phase, PodIP: workerIP}
	must(s.t, s.cluster.Create(s.t.Context(), pod))
}

// worker runs a real worker at its pod's address.
func (s *scene) worker() <-chan error {
	s.t.Helper()
	s.job = &job.Job{
		Task:   transfer.Task{Kind: transfer.KindUpload, Size: 1 << 20},
		Places: job.Under(s.t.TempDir()), Meter: job.NewMeter(),
	}
	s.job.Places.TLS = workertlstest.Server(s.t, s.by, workertls.ServerName("disk", "ns"))
	must(s.t, os.MkdirAll(s.job.Places.Dir, 0o755))
	must(s.t, os.MkdirAll(s.job.Places.Work, 0o755))
	listener, err := net.Listen("tcp", net.JoinHostPort(workerIP, strconv.Itoa(transfer.UploadPort)))
	must(s.t, err)
	ctx, cancel := context.WithCancel(s.t.Context())
	ended, over := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(over)
		_, err := importerupload.Serve(ctx, s.job, listener)
		ended <- err
	}()
	s.t.Cleanup(func() { cancel(); <-over })
	s.pod(corev1.PodRunning)
	return ended
}

// token requests one as kube-apiserver forwards a user's request.
func (s *scene) token(body string) (int, string) {
	s.t.Helper()
	request := httptest.NewRequest(http.MethodPost, "/apis/upload.cdi.kubevirt.io/v1beta1/namespaces/ns/uploadtokenrequests", strings.NewReader(body))
	answer := httptest.NewRecorder()
	s.tokens.ServeHTTP(answer, request)
	made := &uploadv1.UploadTokenRequest{}
	if answer.Code == http.StatusCreated {
		must(s.t, json.Unmarshal(answer.Body.Bytes(), made))
		return answer.Code, made.Status.Token
	}
	return answer.Code, answer.Body.String()
}

func (s *scene) goodToken() string {
	s.t.Helper()
	code, token := s.token(`{"spec":{"pvcName":"disk"}}`)
	if code != http.StatusCreated {
		s.t.Fatalf("no token: %d %s", code, token)
	}
	return token
}

// send calls the proxy.
func (s *scene) send(method, path, token string, body []byte) (int, string) {
	s.t.Helper()
	request, err := http.NewRequestWithContext(s.t.Context(), method, s.server.URL+path, bytes.NewReader(body))
	must(s.t, err)
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := http.DefaultClient.Do(request)
	must(s.t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	must(s.t, err)
	return response.StatusCode, strings.TrimSpace(string(text))
}

var marked = map[string]string{layout.AnnUploadTarget: ""}

func TestAnUploadGoesThroughTheProxy(t *testing.T) {
	for _, path := range []string{"/v1beta1/upload", "/v1beta1/upload-async", "/v1alpha1/upload"} {
		t.Run(path, func(t *testing.T) {
			s := newScene(t)
			s.claim("u-1", marked)
			ended := s.worker()
			token := s.goodToken()
			if code, text := s.send(http.MethodHead, path, token, nil); code != http.StatusOK {
				t.Errorf("HEAD: %d %s", code, text)
			}
			image := bytes.Repeat([]byte("sector--"), 64)
			if code, text := s.send(http.MethodPost, path, token, image); code != http.StatusOK {
				t.Fatalf("POST: %d %s", code, text)
			}
			must(t, <-ended)
			disk, err := os.ReadFile(filepath.Join(s.job.Places.Dir, "disk.img"))
			must(t, err)
			if !bytes.HasPrefix(disk, image) || len(disk) != 1<<20 {
				t.Error("the disk is not what was sent")
			}
			s.pod(corev1.PodSucceeded)
			if code, text := s.send(http.MethodPost, path, token, image); code != http.StatusConflict || !strings.Contains(text, "already successfully populated") {
				t.Errorf("a second upload: %d %s", code, text)
			}
		})
	}
}

func TestTheWorkersWordsReachTheUser(t *testing.T) {
	s := newScene(t)
	s.claim("u-1", marked)
	s.worker()
	code, text := s.send(http.MethodPost, "/v1beta1/upload", s.goodToken(), []byte("<html>Sign in</html>"))
	if code != http.StatusBadRequest || !strings.Contains(text, "not the image of a disk") {
		t.Errorf("%d %s", code, text)
	}
}

func TestWithoutAGoodTokenNothingPasses(t *testing.T) {
	s := newScene(t)
	claim := s.claim("u-1", marked)
	token := s.goodToken()
	for what, test := range map[string]struct {
		token string
		at    time.Duration
		code  int
		says  string
	}{
		"none":        {"", 0, 401, "no upload token"},
		"not a JWT":   {"hello", 0, 401, "no upload token"},
		"a wrong one": {token[:len(token)-8] + "AAAAAAAA", 0, 401, "not one of this proxy"},
		"an old one":  {token, time.Hour, 401, "has expired"},
	} {
		s.now = time.Now().Add(test.at)
		if code, text := s.send(http.MethodPost, "/v1beta1/upload", test.token, nil); code != test.code || !strings.Contains(text, test.says) {
			t.Errorf("%s: %d %s; want %d and %q", what, code, text, test.code, test.says)
		}
	}
	s.now = time.Now()
	// A claim of the same name that was made after the token.
	must(t, s.cluster.Delete(t.Context(), claim))
	if code, text := s.send(http.MethodPost, "/v1beta1/upload", token, nil); code != http.StatusGone {
		t.Errorf("the claim is gone: %d %s", code, text)
	}
	s.claim("u-2", marked)
	if code, text := s.send(http.MethodPost, "/v1beta1/upload", token, nil); code != http.StatusGone {
		t.Errorf("the claim's successor: %d %s", code, text)
	}
}

func TestAProxyThatCannotReachTheWorkerSaysWhy(t *testing.T) {
	s := newScene(t)
	s.proxy.patience = 200 * time.Millisecond
	s.claim("u-1", marked)
	token := s.goodToken()
	expect := func(what string, want int, says string) {
		t.Helper()
		if code, text := s.send(http.MethodPost, "/v1beta1/upload", token, nil); code != want || !strings.Contains(text, says) {
			t.Errorf("%s: %d %s; want %d and %q", what, code, text, want, says)
		}
	}
	expect("no pod", 503, "has not been started")
	s.pod(corev1.PodPending)
	expect("a pod that waits", 503, "its worker is pending")
	s.pod(corev1.PodRunning)
	expect("a pod that does not listen", 503, "does not answer")
	// A server that is not this claim's worker must not get the image.
	listener, err := net.Listen("tcp", net.JoinHostPort(workerIP, strconv.Itoa(transfer.UploadPort)))
	must(t, err)
	other := &http.Server{ReadHeaderTimeout: time.Minute}
	go func() {
		_ = other.Serve(tls.NewListener(listener, workertls.ServerConfig(workertlstest.Server(t, s.by, workertls.ServerName("other", "ns")))))
	}()
	expect("a worker of another claim", 503, "does not answer")
	must(t, other.Close())
}

func TestOtherRequestsOfTheProxy(t *testing.T) {
	s := newScene(t)
	for what, test := range map[string]struct {
		method, path string
		code         int
	}{
		"a browser asks what it may do": {http.MethodOptions, "/v1beta1/upload", 204},
		"a download":                    {http.MethodGet, "/v1beta1/upload", 405},
		"the path of clones":            {http.MethodPost, "/v1beta1/clone", 404},
		"another path":                  {http.MethodPost, "/", 404},
	} {
		if code, text := s.send(test.method, test.path, "", nil); code != test.code {
			t.Errorf("%s: %d %s, want %d", what, code, text, test.code)
		}
	}
}

func TestATokenIsForATargetOfUploads(t *testing.T) {
	upload := &cdiv1.DataVolumeSource{Upload: &cdiv1.DataVolumeSourceUpload{}}
	blank := &cdiv1.DataVolumeSource{Blank: &cdiv1.DataVolumeBlankImage{}}
	for what, test := range map[string]struct {
		annotations map[string]string
		source      *cdiv1.DataVolumeSource
		body        string
		code        int
		says        string
	}{
		"a claim with the annotation": {marked, nil, `{"spec":{"pvcName":"disk"}}`, 201, ""},
		"of a DataVolume for uploads": {nil, upload, `{"spec":{"pvcName":"disk"}}`, 201, ""},
		"of another DataVolume":       {nil, blank, `{"spec":{"pvcName":"disk"}}`, 400, "is not an upload target"},
		"any claim":                   {nil, nil, `{"spec":{"pvcName":"disk"}}`, 400, "is not an upload target"},
		"one that is filled": {map[string]string{layout.AnnUploadTarget: "", layout.AnnPodPhase: "Succeeded"}, nil,
			`{"spec":{"pvcName":"disk"}}`, 409, "already successfully populated"},
		"marked, and of a DataVolume that fills it otherwise": {marked, blank, `{"spec":{"pvcName":"disk"}}`, 400, "is not an upload target"},
		"one that a pod uses": {map[string]string{layout.AnnUploadTarget: "", layout.AnnRunningReason: "ClaimInUse", layout.AnnRunningMessage: "pod web is using it"}, nil,
			`{"spec":{"pvcName":"disk"}}`, 409, "pod web is using it"},
		"none":              {marked, nil, `{"spec":{"pvcName":"other"}}`, 404, "not found"},
		"no name":           {marked, nil, `{}`, 400, "spec.pvcName"},
		"another namespace": {marked, nil, `{"metadata":{"namespace":"x"},"spec":{"pvcName":"disk"}}`, 400, "metadata.namespace is x"},
		"no JSON":           {marked, nil, `hello`, 400, "decoding"},
	} {
		t.Run(what, func(t *testing.T) {
			s := newScene(t)
			claim := s.claim("u-1", test.annotations)
			if test.source != nil {
				dv := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "disk", UID: "u-dv"}}
				dv.Spec.Source = test.source
				must(t, s.cluster.Create(t.Context(), dv))
				claim.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(dv, cdiv1.SchemeGroupVersion.WithKind("DataVolume"))}
				must(t, s.cluster.Update(t.Context(), claim))
			}
			if code, text := s.token(test.body); code != test.code || !strings.Contains(text, test.says) {
				t.Errorf("%d %s; want %d and %q", code, text, test.code, test.says)
			}
		})
	}
}

// TestNothingIsSentToAClaimThatIsUsedByNow: the worker has waited since the claim was unused.
func TestNothingIsSentToAClaimThatIsUsedByNow(t *testing.T) {
	user := func(edits ...func(*corev1.Pod)) client.Object {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", Labels: map[string]string{}}}
		pod.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "disk"}}}}
		pod.Spec.Containers = []corev1.Container{{Name: "c", VolumeMounts: []corev1.VolumeMount{{Name: "v"}}}}
		for _, edit := range edits {
			edit(pod)
		}
		return pod
	}
	guest := func(namespace string, phase v1.VirtualMachineInstancePhase) client.Object {
		vmi := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "guest"}}
		vmi.Spec.Volumes = []v1.Volume{{Name: "disk", VolumeSource: v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: "disk"}}}}
		vmi.Status.Phase = phase
		return vmi
	}
	for what, test := range map[string]struct {
		object client.Object
		// says names the user, or is empty if the image is accepted.
		says string
	}{
		"a pod that runs":          {user(), "pod web"},
		"a pod that has ended":     {user(func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodSucceeded }), ""},
		"a pod that only binds it": {user(func(pod *corev1.Pod) { pod.Spec.Containers = nil }), ""},
		"a guest's pod":            {user(func(pod *corev1.Pod) { pod.Labels[v1.AppLabel] = layout.LauncherApp }), "pod web"},
		"a pod that waits for a lock": {user(func(pod *corev1.Pod) {
			pod.Labels[layout.MaintenanceForLabel] = "vm"
			pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: layout.MaintenanceGate}}
		}), ""},
		"a guest whose pod is gone": {guest("ns", v1.Running), "VMI guest"},
		"a guest that has ended":    {guest("ns", v1.Succeeded), ""},
		"a guest of another's":      {guest("other", v1.Running), ""},
	} {
		t.Run(what, func(t *testing.T) {
			s := newScene(t, test.object)
			s.claim("u-1", marked)
			s.worker()
			token := s.goodToken()
			code, words := s.send(http.MethodPost, "/v1beta1/upload", token, bytes.Repeat([]byte{1}, 1<<20))
			want := http.StatusOK
			if test.says != "" {
				want = http.StatusConflict
			}
			if code != want || code != http.StatusOK && !strings.Contains(words, test.says+" is using PVC ns/disk: upload when that has ended") {
				t.Errorf("%d %s, want %d", code, words, want)
			}
		})
	}
}

// lost drops all packets, as a NetworkPolicy does.
type lost struct{ calls int }

func (l *lost) RoundTrip(*http.Request) (*http.Response, error) {
	l.calls++
	return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.ErrDeadlineExceeded}
}

// TestAWorkerThatNoConnectionReachesIsGivenUpSoon: if the kubelet reaches the worker, the answer must name possible
// obstacles; otherwise the worker may still be about to listen.
func TestAWorkerThatNoConnectionReachesIsGivenUpSoon(t *testing.T) {
	for name, c := range map[string]struct {
		ready corev1.ConditionStatus
		calls int
		says  string
	}{
		"it is ready": {corev1.ConditionTrue, 2, "its worker is ready, and virt-api gets no connection to it: a NetworkPolicy of the namespace ns may"},
		"it is not":   {corev1.ConditionFalse, 3, "its worker does not answer: dial tcp: i/o timeout"},
	} {
		synctest.Test(t, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: transfer.UploadName("claim"), Labels: workerLabels}}
			pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: workerIP, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: c.ready}}}
			scheme := runtime.NewScheme()
			must(t, clientgoscheme.AddToScheme(scheme))
			w := &worker{cluster: fake.NewClientBuilder().WithScheme(scheme).WithObjects(pod).Build(), claim: types.NamespacedName{Namespace: "ns", Name: "claim"}}
			way := &lost{}
			_, err := w.await(t.Context(), way, "/upload", 3*pause-time.Millisecond)
			if err == nil || !strings.Contains(err.Error(), c.says) || !apierrors.IsServiceUnavailable(err) || way.calls != c.calls {
				t.Errorf("%s: after %d calls %v, want %q", name, way.calls, err, c.says)
			}
		})
	}
}

// limited is a cluster that counts requests.
type limited struct {
	client.Client
	secrets, others atomic.Int32
}

func (l *limited) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	if _, is := into.(*corev1.Secret); is {
		l.secrets.Add(1)
	} else {
		l.others.Add(1)
	}
	return l.Client.Get(ctx, key, into, options...)
}

func (s *scene) count() *limited {
	l := &limited{Client: s.cluster}
	s.proxy.cluster, s.proxy.keys = l, &keys{cluster: l, now: func() time.Time { return s.now }}
	return l
}

// Anybody reaches the proxy: what is no good token must not become requests to the API server.
func TestStrangersCauseFewRequestsToTheAPIServer(t *testing.T) {
	s := newScene(t)
	s.claim("u-1", marked)
	good := s.goodToken()
	counts := s.count()
	stranger, err := grant{Namespace: "ns", PVC: "disk", UID: "u-1"}.sign(keyring{"7": bytes.Repeat([]byte{7}, keySize)}, s.now)
	must(t, err)
	send := func(token string) {
		t.Helper()
		if code, text := s.send(http.MethodHead, "/v1beta1/upload", token, nil); code != http.StatusUnauthorized {
			t.Errorf("%d %s", code, text)
		}
	}
	for range 20 {
		send("a.b.c")
	}
	if n := counts.secrets.Load(); n != 0 {
		t.Errorf("what is no token was followed by %d requests for keys", n)
	}
	for range 20 {
		send(good[:len(good)-8] + "AAAAAAAA")
		send(stranger)
	}
	if n := counts.secrets.Load(); n != 1 {
		t.Errorf("bad tokens were followed by %d requests for keys in one second, want 1", n)
	}
	s.now = s.now.Add(unknownEvery)
	send(stranger)
	if n := counts.secrets.Load(); n != 2 || counts.others.Load() != 0 {
		t.Errorf("a token of an unknown key was followed by %d requests for keys, want one a second, and %d for others", n, counts.others.Load())
	}
	s.pod(corev1.PodSucceeded)
	s.now = s.now.Add(ringLife - time.Nanosecond)
	s.send(http.MethodHead, "/v1beta1/upload", good, nil)
	if n := counts.secrets.Load(); n != 2 {
		t.Errorf("a known key was read %d times", n)
	}
	must(t, s.cluster.Update(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: clusterconfig.Namespace, Name: KeysSecret}}))
	s.now = s.now.Add(time.Nanosecond)
	send(good)
}

// The owner of a token may use it many times at once: only one request may wait for its worker.
func TestOnlySoManyUploadsWaitForWorkers(t *testing.T) {
	s := newScene(t)
	s.claim("u-1", marked)
	token := s.goodToken()
	waits := make(chan struct{})
	counts := s.count()
	s.proxy.cluster = &announced{limited: counts, waits: waits}
	s.proxy.patience = time.Hour
	first, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		request := httptest.NewRequestWithContext(first, http.MethodHead, "/v1beta1/upload", nil)
		request.Header.Set("Authorization", "Bearer "+token)
		s.proxy.ServeHTTP(httptest.NewRecorder(), request)
	}()
	<-waits
	before := counts.others.Load()
	for range 10 {
		if code, text := s.send(http.MethodPost, "/v1beta1/upload", token, nil); code != http.StatusServiceUnavailable || !strings.Contains(text, "another upload already") {
			t.Errorf("a second request: %d %s", code, text)
		}
	}
	if n := counts.others.Load() - before; n > 10 { // the first one's
		t.Errorf("the others caused %d requests", n)
	}
	stop()
	<-ended
	if len(s.proxy.turns.claims) != 0 || len(s.proxy.turns.waiting) != 0 {
		t.Errorf("left are %+v", &s.proxy.turns)
	}
}

// announced says once that a pod is read.
type announced struct {
	*limited
	waits chan struct{}
	once  sync.Once
}

func (a *announced) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	if _, is := into.(*corev1.Pod); is {
		a.once.Do(func() { close(a.waits) })
	}
	return a.limited.Get(ctx, key, into, options...)
}

// A tenant makes a pod of the worker's name before virt-controller does.
func TestAForeignPodIsNoWorker(t *testing.T) {
	s := newScene(t)
	s.claim("u-1", marked)
	s.pod(corev1.PodRunning)
	pod := &corev1.Pod{}
	must(t, s.cluster.Get(t.Context(), types.NamespacedName{Namespace: "ns", Name: transfer.UploadName("disk")}, pod))
	pod.Labels = nil
	must(t, s.cluster.Update(t.Context(), pod))
	code, text := s.send(http.MethodPost, "/v1beta1/upload", s.goodToken(), nil)
	if want := "pod ns/cdi-upload-disk, which has the name of the worker of PVC ns/disk, is none of Drydock's; delete it"; code != http.StatusServiceUnavailable || text != want {
		t.Errorf("%d %s", code, text)
	}
}

// A worker's memory may be under a tenant's control: its words must not fill virt-api's.
func TestAWorkersHeadersAreBounded(t *testing.T) {
	s := newScene(t)
	s.proxy.patience = 2 * time.Second // the first answer is never taken
	s.claim("u-1", marked)
	s.pod(corev1.PodRunning)
	listener, err := net.Listen("tcp", net.JoinHostPort(workerIP, strconv.Itoa(transfer.UploadPort)))
	must(t, err)
	var accepts atomic.Bool
	hostile := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !accepts.Load() || r.Method == http.MethodPost {
			w.Header().Set("A", strings.Repeat("a", 1<<20))
		}
	})}
	go func() {
		_ = hostile.Serve(tls.NewListener(listener, workertls.ServerConfig(workertlstest.Server(t, s.by, workertls.ServerName("disk", "ns")))))
	}()
	defer func() { must(t, hostile.Close()) }()
	token := s.goodToken()
	if code, text := s.send(http.MethodPost, "/v1beta1/upload", token, nil); code != http.StatusServiceUnavailable || !strings.Contains(text, "does not answer") {
		t.Errorf("the first answer: %d %s", code, text)
	}
	accepts.Store(true)
	s.proxy.patience = time.Hour
	if code, text := s.send(http.MethodPost, "/v1beta1/upload", token, nil); code != http.StatusBadGateway || !strings.Contains(text, "server response headers exceeded") {
		t.Errorf("the last answer: %d %s", code, text)
	}
}

// Any pod reaches the proxy's port. Headers take many times their size.
func TestStrangersOfTheProxyAreBounded(t *testing.T) {
	s := newScene(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- s.proxy.Serve(ctx, listener, workertls.ServerConfig(workertlstest.Server(t, s.by, workertls.ServerName("disk", "ns"))))
	}()
	defer func() { cancel(); must(t, <-ended) }()
	var flood []net.Conn
	for range 2 * room {
		conn, err := net.Dial("tcp", listener.Addr().String())
		must(t, err)
		defer conn.Close()
		flood = append(flood, conn)
	}
	for i, conn := range flood[:room] {
		must(t, conn.SetReadDeadline(time.Now().Add(time.Minute)))
		var deadline net.Error
		if _, err := conn.Read(make([]byte, 1)); err == nil || errors.As(err, &deadline) && deadline.Timeout() {
			t.Fatalf("connection %d of a stranger is held: %v", i, err)
		}
	}
}
