// Package transfer is the contract between virt-controller and the worker pods that fill claims: it owns a worker's task,
// progress, result, ports and paths. It must import nothing but layout and the standard library: the worker links it,
// and the worker's memory is limited.
//
// A worker gets its Task as JSON in TaskEnv; Secrets and ConfigMaps are mounted at the paths below. While it runs, it
// answers GET ProgressPath on ProgressPort with Progress as JSON, by plain HTTP: nothing in it is secret and no decision
// depends on it. Its container's termination message is a Result as JSON, also after a failure.
//
// The kubelet restarts a worker's container with backoff (restartPolicy OnFailure), as long as its Result is not
// permanent. It exits 0 only when the target is complete. The state for continuing after a restart is in WorkDir or, on a
// file system target, beside the image.
package transfer

// Paths in a worker's pod.
const (
	TaskEnv = "DRYDOCK_TRANSFER"
	// TargetDir is a claim's file system. The complete image is renamed to TargetDir/disk.img.
	TargetDir = "/data"
	// TargetDevice is a block claim.
	TargetDevice = "/dev/cdi-block-volume"
	// SourceDir and SourceDevice are the source claim of a clone (read-only).
	SourceDir    = "/source"
	SourceDevice = "/dev/cdi-source-volume"
	// WorkDir is an emptyDir for journals, which survives the container.
	WorkDir = "/work"
	// CredentialsDir has the source's Secret: accessKeyId and secretKey.
	CredentialsDir = "/credentials"
	// HeadersDir has one folder per Secret of extra headers.
	HeadersDir = "/headers"
	// CADir has the source's certificate authorities (PEM files), from its ConfigMap.
	CADir = "/ca"
	// TLSDir has tls.crt, tls.key and ca.crt of a worker that serves uploads, or that sends a clone to one.
	TLSDir = "/tls"
)

// Ports of a worker.
const (
	ProgressPort = 8080
	ProgressPath = "/progress"
	// UploadPort is where a worker of kind upload listens, with mutual TLS.
	UploadPort = 8443
	// AwaitPortFlag makes the worker's program only wait until a port listens.
	AwaitPortFlag = "-await-port"
	// UploadPath accepts the image as the body of a POST or PUT and answers when the image is complete. UploadAsyncPath
	// answers as soon as the body has been read. HEAD reports whether the worker accepts an upload.
	UploadPath      = "/v1beta1/upload"
	UploadAsyncPath = "/v1beta1/upload-async"
	// These accept the file of a form (multipart/form-data), as browsers send it.
	UploadFormPath      = "/v1beta1/upload-form"
	UploadFormAsyncPath = "/v1beta1/upload-form-async"
	// ClonePath accepts a clone source's data: a raw image, compressed with zstd.
	ClonePath = "/v1beta1/clone"
	// CloneSizeHeader is in bytes. CloneSumTrailer is the SHA-256 sum of the body in hexadecimal: without it, the body is
	// truncated.
	CloneSizeHeader = "Drydock-Disk-Size"
	CloneSumTrailer = "Drydock-Sha256"
	// CloneWindow is the compression's, in bytes.
	CloneWindow = 4 << 20
)

// Kind is a worker's kind of task.
type Kind string

const (
	// KindHTTP imports from an HTTP or HTTPS server.
	KindHTTP Kind = "http"
	// KindRegistry imports the file in an image's /disk.
	KindRegistry Kind = "registry"
	// KindBlank creates an empty disk.
	KindBlank Kind = "blank"
	// KindUpload serves an upload or receives a clone.
	KindUpload Kind = "upload"
	// KindCloneSource sends the claim at SourceDir or SourceDevice to a worker of KindUpload.
	KindCloneSource Kind = "clone-source"
)

// Task is the task of one worker.
type Task struct {
	Kind Kind `json:"kind"`
	// URL is the source of KindHTTP (http, https) and KindRegistry (docker://… or oci-archive:///path), and the target
	// of KindCloneSource (https).
	URL string `json:"url,omitempty"`
	// Checksum is "<algorithm>:<hex>" (sha256, sha512, md5, sha1) of the file as the source serves it.
	Checksum string `json:"checksum,omitempty"`
	// Credentials, SecretHeaders and CA mean that the folders above are mounted.
	Credentials   bool     `json:"credentials,omitempty"`
	Headers       []string `json:"headers,omitempty"` // "Name: value", as written by the user
	SecretHeaders bool     `json:"secretHeaders,omitempty"`
	CA            bool     `json:"ca,omitempty"`
	// Insecure permits a registry with plain HTTP or an unknown certificate, and an HTTPS server with an unknown one.
	Insecure bool `json:"insecure,omitempty"`
	// Archive means that a tar file is unpacked into a file system claim (contentType archive).
	Archive bool `json:"archive,omitempty"`
	// Block means that the target (of KindCloneSource: the source) is a block claim.
	Block bool `json:"block,omitempty"`
	// Size is the disk's in bytes, without the file system's overhead: a smaller image is grown to it, a larger one
	// refused.
	Size int64 `json:"size"`
	// KeepContent makes a worker of KindUpload refuse a target with content: nobody has asked to replace it.
	KeepContent bool `json:"keepContent,omitempty"`
	// Preallocate writes or reserves every block of the target.
	Preallocate bool `json:"preallocate,omitempty"`
	// DeniedNetworks and AllowedNetworks are the administrator's prefixes of source addresses: denied beside those that
	// always are, and allowed despite any denial.
	DeniedNetworks  []string `json:"deniedNetworks,omitempty"`
	AllowedNetworks []string `json:"allowedNetworks,omitempty"`
	// StallSeconds is how long a source may send nothing, 0 for one minute.
	StallSeconds int64 `json:"stallSeconds,omitempty"`
}

// Progress is a worker's progress. It returns to zero when the work begins again, such as the next upload after a failed
// one.
type Progress struct {
	// Total and Done are bytes of the source. Total is 0 while unknown.
	Total int64 `json:"total"`
	Done  int64 `json:"done"`
	// SecondsLeft is an estimate, -1 without one.
	SecondsLeft int64 `json:"secondsLeft"`
	// Step is for a condition's message: "connecting to host", "copying", "converting", "waiting for an upload".
	Step string `json:"step"`
	// Ready means that an upload worker accepts an upload now.
	Ready bool `json:"ready,omitempty"`
}

// Reason is how a worker ended.
type Reason string

// A retry can't help if Permanent returns true.
const (
	ReasonCompleted         Reason = "Completed"
	ReasonSourceUnreachable Reason = "SourceUnreachable"
	// ReasonSourceRefused is a 401, 403, 404 or 410 of the server, or a registry's equivalent.
	ReasonSourceRefused Reason = "SourceRefused"
	// ReasonUntrusted means that the server's certificate is not trusted.
	ReasonUntrusted Reason = "Untrusted"
	// ReasonCut means that the content ended too early or stalled.
	ReasonCut              Reason = "Cut"
	ReasonChecksumMismatch Reason = "ChecksumMismatch"
	// ReasonInvalidImage means that the content is not an image, is damaged, has an unknown format or compression, or
	// is a decompression bomb.
	ReasonInvalidImage Reason = "InvalidImage"
	// ReasonUnsafeImage means that the image refers to another file.
	ReasonUnsafeImage Reason = "UnsafeImage"
	// ReasonTooLarge means that the disk in the image is larger than the claim.
	ReasonTooLarge Reason = "TooLarge"
	// ReasonNoSpace means that the target's file system has no space for the image.
	ReasonNoSpace Reason = "NoSpace"
	// ReasonLimit means that reading the image took more memory or time than permitted.
	ReasonLimit Reason = "LimitExceeded"
	// ReasonHasContent means that the target has content that nobody has asked to replace.
	ReasonHasContent Reason = "HasContent"
	// ReasonInternal is any other error, such as a failed write to the target.
	ReasonInternal Reason = "Error"
)

// Permanent reports whether a retry of the same task would end the same way.
func (r Reason) Permanent() bool {
	switch r {
	case ReasonChecksumMismatch, ReasonInvalidImage, ReasonUnsafeImage, ReasonTooLarge, ReasonLimit, ReasonHasContent:
		return true
	}
	return false
}

// Result is how a worker's container ended.
type Result struct {
	Reason Reason `json:"reason"`
	// Message tells the DataVolume's owner the problem and its remedy, empty when Completed.
	Message string `json:"message,omitempty"`
	// VirtualSize is the written disk's, in bytes.
	VirtualSize int64 `json:"virtualSize,omitempty"`
	// Read has the bytes that this container read from the source, Resumed those that an earlier one had written.
	Read    int64 `json:"read,omitempty"`
	Resumed int64 `json:"resumed,omitempty"`
}
