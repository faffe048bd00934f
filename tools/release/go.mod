// By itself: what makes packages and images brings modules that the program does not need.
module github.com/locket-service/locket/tools/release

go 1.26.4

require github.com/CycloneDX/cyclonedx-go v0.12.0
