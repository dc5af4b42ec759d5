# Starts a frozen program without a window, asks it for an answer of the demo model and ends it.
param([Parameter(Mandatory)] [string] $Program)
$ErrorActionPreference = "Stop"
$data = Join-Path ([IO.Path]::GetTempPath()) ("millm-" + [guid]::NewGuid())
# Start-Process puts arguments together as they are, so a path with spaces needs its quotes.
$folder = "`"$data`""
$port = 8917
New-Item -ItemType Directory $data | Out-Null
try {
    $install = Start-Process $Program -ArgumentList @("demo", "install", "--data-dir", $folder) -Wait -PassThru
    if ($install.ExitCode -ne 0) { throw "demo install ended with $($install.ExitCode)" }
    $serve = Start-Process $Program -ArgumentList @("serve", "--data-dir", $folder, "--port", $port) -PassThru
    $body = @{ model = "SmolLM2-135M-Instruct"; max_tokens = 24; temperature = 0
        messages = @(@{ role = "user"; content = "Name the capital of France." }) } | ConvertTo-Json -Depth 4
    $answer = $null
    foreach ($try in 1..120) {
        try {
            $answer = Invoke-RestMethod "http://127.0.0.1:$port/v1/chat/completions" -Method Post -ContentType "application/json" -Body $body
            break
        } catch { Start-Sleep -Milliseconds 1000 }
    }
    if (-not $answer) { throw "the frozen program never answered" }
    $text = $answer.choices[0].message.content
    if ($text -notmatch "Paris") { throw "unexpected answer: $text" }
    Write-Host "it answers: $text"
} finally {
    if ($serve -and -not $serve.HasExited) { Stop-Process $serve.Id -Force }
    Remove-Item -Recurse -Force $data -ErrorAction SilentlyContinue
}
