package imageupload

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	uploadv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/upload/v1beta1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/virtctl/env"
)

// cluster plays kube-apiserver, virt-controller and the upload proxy for virtctl: a new volume becomes ready, and one
// with an image becomes filled.
type cluster struct {
	t          *testing.T
	api, proxy *httptest.Server

	mu      sync.Mutex
	dv      *cdiv1.DataVolume
	claim   *corev1.PersistentVolumeClaim
	source  map[string]any
	pods    corev1.PodList
	patched string
	onReady func(*cluster)
	// answers are the proxy's codes before its success, words its text for them.
	answers  []int
	words    string
	async    bool
	received []byte
	path     string
	tokens   int
}

func newCluster(t *testing.T) *cluster {
	c := &cluster{t: t, async: true, onReady: (*cluster).ready}
	c.api, c.proxy = httptest.NewTLSServer(http.HandlerFunc(c.serveAPI)), httptest.NewTLSServer(http.HandlerFunc(c.serveProxy))
	t.Cleanup(c.api.Close)
	t.Cleanup(c.proxy.Close)
	return c
}

func (c *cluster) ready() {
	if c.dv != nil {
		c.dv.Status.Phase = cdiv1.UploadReady
		return
	}
	c.claim.Annotations[layout.AnnPodReady] = "true"
}

func (c *cluster) serveAPI(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	answer := func(object any, exists bool) {
		w.Header().Set("Content-Type", "application/json")
		if !exists {
			w.WriteHeader(http.StatusNotFound)
			object = metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Code: 404, Reason: "NotFound", Message: "not found"}
		}
		_ = json.NewEncoder(w).Encode(object)
	}
	switch {
	case strings.HasSuffix(r.URL.Path, "/cdiconfigs/config"):
		authority := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.proxy.Certificate().Raw}))
		config := cdiv1.CDIConfig{}
		config.Status.UploadProxyURL, config.Status.UploadProxyCA = new(strings.TrimPrefix(c.proxy.URL, "https://")), &authority
		answer(config, true)
	case r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/datavolumes"):
		c.dv = &cdiv1.DataVolume{}
		c.claim = &corev1.PersistentVolumeClaim{}
		_ = json.Unmarshal(body, c.dv)
		c.onReady(c)
		answer(c.dv, true)
	case r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/persistentvolumeclaims"):
		c.claim = &corev1.PersistentVolumeClaim{}
		_ = json.Unmarshal(body, c.claim)
		c.onReady(c)
		answer(c.claim, true)
	case r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/uploadtokenrequests"):
		c.tokens++
		answer(uploadv1.UploadTokenRequest{Status: uploadv1.UploadTokenRequestStatus{Token: fmt.Sprint("t-", c.tokens)}}, true)
	case r.Method == http.MethodPatch && strings.Contains(r.URL.Path, "/datasources/"):
		_ = json.Unmarshal(body, &c.source)
		answer(c.source, true)
	case r.Method == http.MethodPatch:
		c.patched = string(body)
		c.claim.Annotations = map[string]string{layout.AnnUploadTarget: ""}
		c.onReady(c)
		answer(c.claim, true)
	case strings.HasSuffix(r.URL.Path, "/pods"):
		answer(c.pods, true)
	case strings.Contains(r.URL.Path, "/datavolumes/"):
		answer(c.dv, c.dv != nil)
	default:
		answer(c.claim, c.claim != nil)
	}
}

func (c *cluster) serveProxy(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case r.Header.Get("Authorization") != fmt.Sprint("Bearer t-", c.tokens):
		http.Error(w, "a stale token", http.StatusUnauthorized)
	case r.Method == http.MethodHead && r.URL.Path == asyncPath && !c.async:
		w.WriteHeader(http.StatusNotFound)
	case r.Method == http.MethodHead || err != nil:
	case len(c.answers) > 0:
		code := c.answers[0]
		c.answers = c.answers[1:]
		http.Error(w, c.words, code)
	default:
		c.received, c.path = body, r.URL.Path
		if c.dv != nil {
			c.dv.Status.Phase = cdiv1.Succeeded
		} else {
			c.claim.Annotations[layout.AnnPodPhase] = "Succeeded"
		}
	}
}

func (c *cluster) upload(args ...string) (string, error) {
	c.t.Helper()
	config := api.NewConfig()
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.api.Certificate().Raw})
	config.Clusters["test"] = &api.Cluster{Server: c.api.URL, CertificateAuthorityData: authority}
	config.AuthInfos["ann"] = &api.AuthInfo{Token: "x"}
	config.Contexts["test"] = &api.Context{Cluster: "test", AuthInfo: "ann", Namespace: "lab"}
	config.CurrentContext = "test"
	path := filepath.Join(c.t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		c.t.Fatal(err)
	}
	flags := genericclioptions.NewConfigFlags(true)
	flags.KubeConfig = &path
	var out bytes.Buffer
	e := &env.Env{In: strings.NewReader(""), Out: &out, Err: &out, Flags: flags, Program: "virtctl"}
	cmd := NewCommand(e)
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err := cmd.ExecuteContext(c.t.Context())
	return out.String(), err
}

func image(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "disk.img")
	if err := os.WriteFile(path, []byte("a disk"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestADataVolumeIsMadeAndFilled(t *testing.T) {
	c, path := newCluster(t), image(t)
	out, err := c.upload("dv", "disk", "--size=1Gi", "--image-path="+path, "--storage-class=local", "--volume-mode=block",
		"--access-mode=readwritemany", "--force-bind", "--default-instancetype=u1.small", "--datasource")
	if err != nil {
		t.Fatal(err)
	}
	want := "DataVolume lab/disk created\nWaiting for PVC disk upload pod to be ready...\nPod now ready\nUploading data to " + c.proxy.URL + "\n" +
		"Uploading data completed successfully, waiting for processing to complete, you can hit ctrl-c without interrupting the progress\n" +
		"Processing completed successfully\nDataSource lab/disk created\nUploading " + path + " completed successfully\n"
	if out != want {
		t.Errorf("printed:\n%swant:\n%s", out, want)
	}
	storage := c.dv.Spec.Storage
	if c.dv.Spec.Source.Upload == nil || *storage.StorageClassName != "local" || *storage.VolumeMode != corev1.PersistentVolumeBlock ||
		storage.AccessModes[0] != corev1.ReadWriteMany || storage.Resources.Requests.Storage().String() != "1Gi" {
		t.Errorf("the DataVolume is %+v", c.dv.Spec)
	}
	if _, bound := c.dv.Annotations[layout.AnnImmediate]; !bound || c.dv.Labels["instancetype.kubevirt.io/default-instancetype"] != "u1.small" {
		t.Errorf("its metadata is %+v", c.dv.ObjectMeta)
	}
	if string(c.received) != "a disk" || c.path != asyncPath {
		t.Errorf("%q came at %s", c.received, c.path)
	}
	if c.source["kind"] != "DataSource" {
		t.Errorf("the DataSource is %v", c.source)
	}
}

func TestAClaimIsMadeAndFilled(t *testing.T) {
	c := newCluster(t)
	c.async = false
	if out, err := c.upload("pvc", "disk", "--size=1Gi", "--archive-path="+image(t)); err != nil || !strings.HasPrefix(out, "PVC lab/disk created\n") {
		t.Fatalf("%s%v", out, err)
	}
	if _, marked := c.claim.Annotations[layout.AnnUploadTarget]; !marked || c.claim.Annotations[layout.AnnContentType] != "archive" ||
		c.claim.Annotations[layout.AnnOverwrite] != "true" || c.claim.Spec.AccessModes[0] != corev1.ReadWriteOnce {
		t.Errorf("the claim is %+v", c.claim)
	}
	if c.path != syncPath {
		t.Errorf("sent to %s", c.path)
	}
}

// Scripts of old KubeVirt releases use these flags.
func TestDeprecatedFlagsNameTheClaim(t *testing.T) {
	c := newCluster(t)
	out, err := c.upload("--pvc-name=disk", "--pvc-size=1Gi", "--image-path="+image(t))
	if err != nil || c.claim == nil || c.claim.Name != "disk" || c.claim.Spec.Resources.Requests.Storage().String() != "1Gi" || string(c.received) != "a disk" {
		t.Fatalf("the claim is %+v, %q received: %s%v", c.claim, c.received, out, err)
	}
	for _, want := range []string{
		"Flag --pvc-name has been deprecated, use the arguments pvc NAME\n", "Flag --pvc-size has been deprecated, use --size\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("printed:\n%swant %q", out, want)
		}
	}
}

func TestAClaimThatExistsIsMarked(t *testing.T) {
	c := newCluster(t)
	c.claim = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "disk", Namespace: "lab"}}
	out, err := c.upload("pvc", "disk", "--no-create", "--image-path="+image(t))
	if err != nil || !strings.HasPrefix(out, "Using existing PVC lab/disk\n") {
		t.Errorf("%s%v", out, err)
	}
}

func TestContentIsReplacedWhenThatIsAskedFor(t *testing.T) {
	for name, test := range map[string]struct {
		annotations map[string]string
		flags       []string
		want        string
	}{
		"a claim of which nothing is known": {nil, []string{"--overwrite"},
			`{"metadata":{"annotations":{"cdi.kubevirt.io/storage.upload.target":"","drydock.dev/upload-overwrites":"true"},"resourceVersion":"7"}}`},
		"one that was filled": {map[string]string{layout.AnnUploadTarget: "", layout.AnnPodPhase: "Succeeded"}, []string{"--overwrite"},
			`{"metadata":{"annotations":{"cdi.kubevirt.io/storage.pod.phase":null,"cdi.kubevirt.io/storage.pod.ready":null,"drydock.dev/upload-overwrites":"true"},"resourceVersion":"7"}}`},
		"one that is marked anew": {nil, nil,
			`{"metadata":{"annotations":{"cdi.kubevirt.io/storage.upload.target":"","drydock.dev/upload-overwrites":"false"},"resourceVersion":"7"}}`},
		"one that says something of an upload before": {map[string]string{layout.AnnPodPhase: "Failed", layout.AnnOverwrite: "true"}, nil,
			`{"metadata":{"annotations":{"cdi.kubevirt.io/storage.pod.phase":null,"cdi.kubevirt.io/storage.pod.ready":null,` +
				`"cdi.kubevirt.io/storage.upload.target":"","drydock.dev/upload-overwrites":"false"},"resourceVersion":"7"}}`},
		"one that is marked already": {map[string]string{layout.AnnUploadTarget: "uid", layout.AnnOverwrite: "uid", layout.AnnPodReady: "true"}, nil, ""},
	} {
		c := newCluster(t)
		c.claim = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "disk", Namespace: "lab", ResourceVersion: "7", Annotations: test.annotations}}
		out, err := c.upload(append([]string{"pvc", "disk", "--no-create", "--image-path=" + image(t)}, test.flags...)...)
		if err != nil || c.patched != test.want || string(c.received) != "a disk" {
			t.Errorf("%s: patched by %s, %q received: %s%v", name, c.patched, c.received, out, err)
		}
	}
}

func TestAnUploadIsTriedAgainWithAFreshToken(t *testing.T) {
	c := newCluster(t)
	c.answers, c.words = []int{503, 429}, "another upload to this claim is under way"
	out, err := c.upload("dv", "disk", "--size=1Gi", "--image-path="+image(t))
	if err != nil || c.tokens != 3 || string(c.received) != "a disk" {
		t.Errorf("%d tokens, %q received: %v", c.tokens, c.received, err)
	}
	if !strings.Contains(out, "The upload failed and is tried again: another upload to this claim is under way") {
		t.Errorf("printed:\n%s", out)
	}
}

func TestUploadsThatCannotBe(t *testing.T) {
	path := image(t)
	create := []string{"dv", "disk", "--size=1Gi", "--image-path=" + path}
	existing := func(change func(*cdiv1.DataVolume)) func(*cluster) {
		return func(c *cluster) {
			c.dv, c.claim = &cdiv1.DataVolume{}, &corev1.PersistentVolumeClaim{}
			c.dv.Spec.Source = &cdiv1.DataVolumeSource{Upload: &cdiv1.DataVolumeSourceUpload{}}
			change(c.dv)
		}
	}
	running := func(words string) []cdiv1.DataVolumeCondition {
		return []cdiv1.DataVolumeCondition{{Type: cdiv1.DataVolumeRunning, Message: words}}
	}
	onReady := func(do func(*cluster)) func(*cluster) { return func(c *cluster) { c.onReady = do } }
	for what, test := range map[string]struct {
		given func(*cluster)
		args  []string
		says  string
	}{
		"nothing to upload to":         {nil, []string{"dv"}, "NAME is missing"},
		"an unknown kind":              {nil, []string{"vm", "x"}, "must be dv or pvc"},
		"named twice":                  {nil, []string{"pvc", "disk", "--pvc-name=disk", "--image-path=" + path}, "--pvc-name contradicts"},
		"of two sizes":                 {nil, append([]string{"--pvc-size=2Gi"}, create...), "--pvc-size contradicts"},
		"no image":                     {nil, []string{"dv", "disk"}, "either --image-path or --archive-path"},
		"a file that is not there":     {nil, []string{"dv", "disk", "--size=1Gi", "--image-path=/nowhere"}, "no such file"},
		"a folder":                     {nil, []string{"dv", "disk", "--size=1Gi", "--image-path=" + filepath.Dir(path)}, "is no file"},
		"a size that is none":          {nil, []string{"dv", "disk", "--size=big", "--image-path=" + path}, "--size must be a size"},
		"no size":                      {nil, []string{"dv", "disk", "--image-path=" + path}, "the size must be specified"},
		"a read-only volume":           {nil, append([]string{"--access-mode=ReadOnlyMany"}, create...), "cannot upload to a readonly volume"},
		"an unknown mode":              {nil, append([]string{"--volume-mode=raw"}, create...), "--volume-mode must be one of"},
		"a kind without a name":        {nil, append([]string{"--default-preference-kind=x"}, create...), "--default-preference must be provided"},
		"none, and none is to be made": {nil, []string{"dv", "disk", "--no-create", "--image-path=" + path}, "DataVolume lab/disk not found"},
		"filled already":               {existing(func(dv *cdiv1.DataVolume) { dv.Status.Phase = cdiv1.Succeeded }), create, "PVC disk already successfully imported/cloned/updated"},
		"of another source":            {existing(func(dv *cdiv1.DataVolume) { dv.Spec.Source = &cdiv1.DataVolumeSource{} }), create, "does not have the source upload"},
		"used by a pod": {func(c *cluster) {
			c.claim = &corev1.PersistentVolumeClaim{}
			pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "virt-launcher-vm"}}
			pod.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "disk"}}}}
			c.pods.Items = []corev1.Pod{pod}
		}, []string{"pvc", "disk", "--no-create", "--image-path=" + path}, "PVC lab/disk is used by pod virt-launcher-vm"},
		"a claim that was filled": {func(c *cluster) {
			c.claim = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{layout.AnnUploadTarget: "", layout.AnnPodPhase: "Succeeded"}}}
		}, []string{"pvc", "disk", "--no-create", "--image-path=" + path}, "already successfully imported"},
		"a DataVolume to be replaced": {nil, append([]string{"--overwrite"}, create...), "--overwrite is for a pvc"},
		"that waits for a consumer":   {onReady(func(c *cluster) { c.dv.Status.Phase = cdiv1.WaitForFirstConsumer }), create, "use force-bind flag"},
		"that failed": {onReady(func(c *cluster) { c.dv.Status.Phase, c.dv.Status.Conditions = cdiv1.Failed, running("no space") }), create,
			"DataVolume disk has failed: no space"},
		"that never gets ready": {onReady(func(c *cluster) { c.dv.Status.Conditions = running("pod is pending: no node fits") }),
			append([]string{"--wait-secs=1"}, create...), "not ready for an upload after 1s: pod is pending: no node fits"},
		"an image that is refused": {func(c *cluster) { c.answers, c.words = []int{400}, "the content is not the image of a disk" }, create,
			"the content is not the image of a disk"},
		"a proxy that stays broken": {func(c *cluster) { c.answers, c.words = []int{502, 502}, "cut off" }, append([]string{"--retry=0"}, create...), "cut off"},
		"a proxy of another name":   {nil, append([]string{"--uploadproxy-url=https://localhost:1", "--retry=0"}, create...), "connection refused"},
		"an address that is none":   {nil, append([]string{"--uploadproxy-url=ftp://x"}, create...), "is no URL"},
	} {
		t.Run(what, func(t *testing.T) {
			c := newCluster(t)
			if test.given != nil {
				test.given(c)
			}
			if out, err := c.upload(test.args...); err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("%v, want %q; printed:\n%s", err, test.says, out)
			}
		})
	}
}

func TestAnUnknownCertificate(t *testing.T) {
	stranger := httptest.NewTLSServer(http.NotFoundHandler())
	defer stranger.Close()
	c := newCluster(t)
	// Both test servers share one certificate; only another name makes this one foreign.
	address := strings.Replace(stranger.URL, "127.0.0.1", "localhost", 1)
	if _, err := c.upload("dv", "disk", "--size=1Gi", "--image-path="+image(t), "--uploadproxy-url="+address); err == nil || !strings.Contains(err.Error(), "--insecure") {
		t.Errorf("%v", err)
	}
	c = newCluster(t)
	address = strings.Replace(c.proxy.URL, "127.0.0.1", "localhost", 1)
	if _, err := c.upload("dv", "disk", "--size=1Gi", "--image-path="+image(t), "--uploadproxy-url="+address, "--insecure"); err != nil {
		t.Error(err)
	}
}
