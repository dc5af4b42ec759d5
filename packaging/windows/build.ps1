# Builds the one-folder program and the installer on Windows, then starts the frozen program once.
#   powershell -ExecutionPolicy Bypass -File packaging\windows\build.ps1
# Wants Python 3.11-3.13 with the packages installed (pip install -c constraints.txt .) and Inno Setup 6 or 7 (iscc).
$ErrorActionPreference = "Stop"
Set-Location (Join-Path $PSScriptRoot "..\..")
$python = if ($env:PY) { $env:PY } else { "python" }
$out = "packaging\out"

function Invoke-Checked {
    param([string] $Program, [string[]] $Arguments)
    & $Program @Arguments
    if ($LASTEXITCODE -ne 0) { throw "$Program $Arguments ended with $LASTEXITCODE" }
}

Invoke-Checked $python @("-m", "pip", "install", "--quiet", "-c", "constraints.txt", "pyinstaller")
$env:QT_QPA_PLATFORM = "offscreen"
Invoke-Checked $python @("packaging\icons.py", "$out\icons")
Remove-Item Env:QT_QPA_PLATFORM
$wheel = & $python packaging\demo_wheel.py "$out\wheel"
if ($LASTEXITCODE -ne 0) { throw "the demo model's wheel could not be fetched" }
$env:MILLM_WHEEL = (Resolve-Path $wheel).Path
Invoke-Checked $python @("-m", "PyInstaller", "--noconfirm", "--log-level", "WARN", "--distpath", "$out\dist", "--workpath", "$out\work", "packaging\millm.spec")
& packaging\windows\smoke.ps1 "$out\dist\millm-desktop\millm-desktop.exe"

$version = (Select-String -Path app\about.py -Pattern '^VERSION = "(.*)"').Matches[0].Groups[1].Value
$iscc = Get-Command iscc -ErrorAction SilentlyContinue
$compiler = if ($iscc) { $iscc.Source } else {
    @($env:ProgramFiles, ${env:ProgramFiles(x86)}) | ForEach-Object { "$_\Inno Setup 7\ISCC.exe"; "$_\Inno Setup 6\ISCC.exe" } |
        Where-Object { Test-Path $_ } | Select-Object -First 1
}
if (-not $compiler) { throw "Inno Setup was not found: choco install innosetup, or https://jrsoftware.org/isdl.php" }
$options = @("/DVersion=$version", "packaging\windows\millm.iss")
if ($env:MILLM_SIGN) { $options = @("/DSign=1", "/Smillm=$env:MILLM_SIGN `$f") + $options }
Invoke-Checked $compiler $options
Get-ChildItem "$out\millm-desktop-*.exe" | Select-Object Name, Length
