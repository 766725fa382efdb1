package transfer

import "drydock.dev/drydock/internal/contracts/layout"

// UploadName names a claim's upload worker pod, and its Service on UploadPort. A claim's name with dots, or longer than a
// Service's, is changed and gets a digest.
func UploadName(claim string) string { return layout.HostName("cdi-upload-"+claim, claim) }
